"""What a run was given that exists only in a Python session, so that no command makes it again."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.errors import HoldfastError
from holdfast.core.expression import parse
from holdfast.core.user_files import file_reference
from holdfast.data.loading import sources
from holdfast.method.config import Config
from holdfast.method.part import parts
from holdfast.method.recipes import RECIPES
from holdfast.metrics.metric_names import metric_named
from holdfast.metrics.own_function import OwnFunction
from holdfast.models.zoo import models


def session_objects(config: Config) -> dict[str, str]:
    """Return the names of data, model, metric and parts that are neither in the library nor in a file.

    The files that the config imports must have been imported already.

    Args:
        config: The config of a run.

    Returns:
        What it is, and its name.
    """
    found = {}
    if not file_reference(config.data, "data set") and unknown_name(config.data, sources()):
        found["data"] = config.data
    if not file_reference(config.model, "model") and unknown_name(config.model, models()):
        found["model"] = config.model
    metric = None if config.metric is None else metric_named(config.metric)
    if isinstance(metric, OwnFunction) and metric.source is None:
        found["metric"] = metric.label
    own = [call.name for call in parse(config.method) if call.name not in {**parts(), **RECIPES}]
    return found | ({"parts": own[0]} if own else {})


def unknown_name(text: str, known: Mapping[str, object]) -> bool:
    """Tell whether a text names nothing that can be made by name; one that cannot be read is a class's name."""
    try:
        return parse(text)[0].name not in known
    except HoldfastError:
        return True
