"""Which settings may change when a run is resumed: one rule for run, compare, reproduce and deploy.

A setting states its part in the rule as a role, in ``method/config.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.core.errors import HoldfastError
from holdfast.core.params import checked
from holdfast.method.config import FIELDS, Config, device_kind, with_role
from holdfast.method.config_text import setting_to_text
from holdfast.method.method import Method, as_method
from holdfast.method.part import Part
from holdfast.runs.session_objects import session_objects

# What a Python object is passed as when a run is resumed.
ARGUMENTS = {"data": "federation=", "model": "model=", "metric": "metric=", "parts": "the method"}


class Difference(NamedTuple):
    """A setting that a run on disk has with another value."""

    name: str
    stored: Any
    asked: Any


def first_difference(stored: Config, asked: Mapping[str, Any], roles: tuple[str, ...] = ("free",)) -> Difference | None:
    """Return the first setting that differs from a stored run's and may not.

    Args:
        stored: The config of the run on disk.
        asked: The settings that are wanted now.
        roles: The roles of settings that may differ.

    Returns:
        The difference, or None if the run can be resumed with these settings.
    """
    allowed, decided = with_role(*roles), with_role("decided")
    for name, value in asked.items():
        if name not in FIELDS or name in allowed or (value in (None, "auto") and name in decided):
            continue
        value = checked(stored.name, FIELDS[name], value)
        before = stored.deal_seed if name == "split_seed" else getattr(stored, name)
        if value != before and not (name == "device" and device_kind(str(value)) == device_kind(str(before))):
            return Difference(name, before, value)
    return None


def resumed_config(stored: Config, asked: Mapping[str, Any], method: str | Part | Method | None = None) -> Config:
    """Return the config with which a single run is resumed; settings that may not change are refused.

    Args:
        stored: The config of the run on disk.
        asked: The settings that are given now.
        method: The method that is given now, if any.

    Returns:
        The stored config with the changes.
    """
    asked = dict(asked)
    if method is not None and str(method) != stored.method and as_method(method) != as_method(stored.method):
        asked["method"] = str(method)
    roles = ("free", "extends")
    found = first_difference(stored, asked, roles)
    if found:
        stored_text, asked_text = setting_to_text(found.stored), setting_to_text(found.asked)
        raise HoldfastError(
            f"the run to resume has {found.name} = {stored_text}, not {asked_text}: leave that setting out, or "
            "start over with --overwrite"
        )
    config = stored.changed(**{k: v for k, v in asked.items() if k == "device" or k in with_role(*roles)})
    if config.rounds != stored.rounds and stored.schedule.depends_on_rounds:
        raise HoldfastError(
            f"the run to resume has lr_schedule = {stored.lr_schedule}, whose rates depend on its {stored.rounds} "
            "rounds: leave out rounds, or start over with --overwrite"
        )
    return config


def refuse_without_objects(
    stored: Config,
    folder: Path,
    federation: object,
    model: object,
    method: str | Part | Method | None,
    metric: str | None = None,
) -> None:
    """Refuse to resume a run that was started with Python objects, unless they are given again.

    Args:
        stored: The config of the run on disk.
        folder: The run folder.
        federation: The federation that is given now, if any.
        model: The model that is given now, if any.
        method: The method that is given now, if any.
        metric: The metric that is given now, if any.
    """
    given = {"data": federation, "model": model, "metric": metric, "parts": None if isinstance(method, str) else method}
    known = {name: found for name, found in session_objects(stored).items() if given[name] is None}
    lacking = {ARGUMENTS[name]: f"the {name.removesuffix('s')} {found}" for name, found in known.items()}
    if lacking:
        raise HoldfastError(
            f"the run in {folder} was started from Python with {' and '.join(lacking.values())}: resume it with "
            f"holdfast.run(..., out=..., resume=True) and {' and '.join(lacking)}"
        )
