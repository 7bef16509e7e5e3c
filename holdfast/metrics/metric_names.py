"""Look up metrics by name, and functions of the user that are metrics: ``costs.py:cost``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core.discovery import discover
from holdfast.core.errors import HoldfastError, unknown
from holdfast.core.params import build, one
from holdfast.core.user_files import file_reference
from holdfast.metrics import own_function
from holdfast.metrics.metric import Metric
from holdfast.metrics.own_function import OwnFunction
from holdfast.tasks.task import Task


def metrics() -> dict[str, type[Metric]]:
    """Return every metric by name: those of ``holdfast/metrics`` and those that a user has written."""
    return discover("holdfast.metrics", Metric)


def metric_named(text: str) -> Metric:
    """Return the metric that the config of a run names, whatever the task; nothing is executed.

    A name that is not known is that of a function in an earlier Python session.
    """
    reference = file_reference(text, "metric")
    if reference is not None:
        return own_function.from_file(reference)
    call, known = one(text, "metric"), metrics()
    return build(call, known, "metric") if call.name in known else own_function.from_name(call)


def fitting(task: Task) -> list[str]:
    """Return the names of the metrics that fit a task, its own default first."""
    known = [name for name, cls in metrics().items() if task.targets in cls.tasks]
    return sorted(known, key=lambda name: (name not in task.metrics[:1], name))


def read_metric(text: str | None, task: Task) -> Metric:
    """Return the metric that a text names, ready to be computed; the task's default if there is none."""
    metric = metric_named(text or task.metrics[0])
    if isinstance(metric, OwnFunction) and metric.source is None:
        raise unknown("metric", one(metric.label, "metric").name, fitting(task))
    if task.targets not in metric.tasks:
        raise HoldfastError(f"{metric.name} does not fit {task.name}; use one of {', '.join(fitting(task))}")
    metric.require()
    return metric


def every_metric(task: Task) -> list[Metric]:
    """Return the metrics of a finished run: all that fit its task and are installed, its own default first."""
    found = [metrics()[name]() for name in fitting(task)]
    return [metric for metric in found if metric.installed() and not metric.on_request]


def metric_text(metric: str | Callable[..., Any] | None) -> str | None:
    """Return what the config of a run calls a metric: a text as it is, a function by its name."""
    if metric is None or isinstance(metric, str):
        return metric
    if not callable(metric):
        raise HoldfastError(f"the metric is of type {type(metric).__name__}: pass a name or a function")
    text = own_function.text_of(metric)
    name = one(text, "metric").name
    if name in metrics():
        raise HoldfastError(f"the function {name} has the name of a metric of the library: rename it")
    return text
