"""Whether the best points of a sweep are at its edge, where a wider sweep may find better ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from holdfast.comparison.part_sweeps import is_part_axis, value_to_text
from holdfast.comparison.plan import WHO_TRAINS
from holdfast.comparison.study_schema import Study
from holdfast.method.config import FIELDS
from holdfast.method.part import parts


def edges(study: Study) -> list[str]:
    """Return one line on the methods whose best point has the lowest or highest value of a swept setting.

    It is empty until all runs are done: the best point may still change.
    """
    best = study.best_points or {}
    chosen = [e for e in study.entries if best.get(e.method) == e.label]
    at: dict[str, list[str]] = {}
    for name, values in study.sweep.items():
        ends = open_ends(name, values)
        for e in chosen:
            if e.settings.get(name) in ends:
                at.setdefault(f"{name}={value_to_text(name, e.settings[name])}", []).append(e.method)
    if not at or study.progress is not None:
        return []
    where = "; ".join(f"{point} for {', '.join(methods)}" for point, methods in at.items())
    return [f"best at the edge of the sweep: {where}: a wider sweep may do better"]


def open_ends(name: str, values: Sequence[Any]) -> list[Any]:
    """Return the lowest and highest value, unless they are limits of the setting; empty if it is not tuned.

    >>> open_ends("lr", [0.1, 0.3, 0.03]), open_ends("lr_decay", [0.9, 1.0]), open_ends("lr", [0.1])
    ([0.03, 0.3], [0.9], [])
    >>> open_ends("clients", [5, 10])
    []
    """
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if name in WHO_TRAINS or not numbers or len(values) < 2:
        return []
    limits = limits_of(name)
    return [v for v in (min(values), max(values)) if v not in (limits.get("low"), limits.get("high"))]


def limits_of(name: str) -> Mapping[str, Any]:
    """Return the bounds of a setting or of a part's parameter; none for a part that is not known here."""
    if not is_part_axis(name):
        return FIELDS[name].metadata
    part, _, parameter = name.partition(".")
    known = parts()
    return next((f.metadata for f in fields(known[part]) if f.name == parameter), {}) if part in known else {}
