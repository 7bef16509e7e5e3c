"""Whether the best points of a sweep lie at its edge, where it says least of what is best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.comparison.plan import WHO, shown
from holdfast.method.config import FIELDS


def edges(found: dict[str, Any]) -> list[str]:
    """One line on the methods whose best point has the least or the greatest value of a setting that was swept.

    Nothing until all runs are done: what is best so far may not be in the end.
    """
    best = found.get("best_points") or {}
    chosen = [e for e in found["entries"] if best.get(e["method"]) == e["label"]]
    at: dict[str, list[str]] = {}
    for name, values in (found.get("sweep") or {}).items():
        ends = wider(name, values)
        for e in chosen:
            if e["settings"][name] in ends:
                at.setdefault(f"{name}={shown(e['settings'][name])}", []).append(e["method"])
    if not at or "progress" in found:
        return []
    where = "; ".join(f"{point} for {', '.join(methods)}" for point, methods in at.items())
    return [f"best at the edge of the sweep: {where}: a wider sweep may do better"]


def wider(name: str, values: Sequence[Any]) -> list[Any]:
    """The least and the greatest value, where the setting goes on beyond; none of one that is no matter of tuning.

    >>> wider("lr", [0.1, 0.3, 0.03]), wider("lr_decay", [0.9, 1.0]), wider("lr", [0.1]), wider("clients", [5, 10])
    ([0.03, 0.3], [0.9], [], [])
    """
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if name in WHO or not numbers or len(values) < 2:
        return []
    limits = FIELDS[name].metadata
    return [v for v in (min(values), max(values)) if v not in (limits.get("low"), limits.get("high"))]
