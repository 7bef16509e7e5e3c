"""The statistics of a comparison: means over seeds, paired differences, what it takes to reach an accuracy."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

CONFIDENCE = 0.95
NOT_SEEN = "no difference seen"
Values = Sequence[float | None]


def spread(values: Values) -> dict[str, Any]:
    """Mean and standard deviation (n - 1) over seeds. Both are None where a seed has no value: that run diverged.

    >>> spread([0.5, 1.0])["mean"], round(spread([0.5, 1.0])["std"], 4)
    (0.75, 0.3536)
    """
    known = [v for v in values if v is not None]
    whole = bool(known) and len(known) == len(values)
    return {
        "mean": statistics.fmean(known) if whole else None,
        "std": statistics.stdev(known) if whole and len(known) > 1 else None,
        "values": list(values),
    }


def paired(values: Values, reference: Values) -> dict[str, Any] | None:
    """The mean difference to a reference, seed by seed, with its t interval and the p of the paired t test.

    None where a run diverged. Interval and p need two seeds, and scipy. Where all differences are the same the
    interval is that one number.
    """
    both = list(zip(values, reference, strict=True))
    gaps = [a - b for a, b in both if a is not None and b is not None]
    n = len(gaps)
    if not gaps or n < len(both):
        return None
    mean = statistics.fmean(gaps)
    found: dict[str, Any] = {"mean": mean, "low": None, "high": None, "p": None, "n": n}
    t = student()
    if n < 2 or t is None:
        return found
    error = statistics.stdev(gaps) / math.sqrt(n)
    half = float(t.ppf((1 + CONFIDENCE) / 2, n - 1)) * error
    certain = 1.0 if mean == 0 else 0.0  # all differences are the same
    p = 2 * float(t.sf(abs(mean) / error, n - 1)) if error > 0 else certain
    return found | {"low": mean - half, "high": mean + half, "p": p}


def student() -> Any:
    """Student's t distribution, or None where scipy is not installed."""
    try:
        from scipy.stats import t
    except ImportError:
        return None
    return t


def verdict(difference: dict[str, Any] | None) -> str:
    """What the interval says: ``better``, ``worse`` or ``no difference seen``; nothing where there is no interval."""
    if difference is None or difference["low"] is None:
        return ""
    if difference["low"] > 0:
        return "better"
    return "worse" if difference["high"] < 0 else NOT_SEEN


def reach(history: Sequence[dict[str, Any]], target: float) -> tuple[int | None, float | None, int | None]:
    """Rounds, seconds and bytes until a run's test accuracy first reached a target; None for each when it never did."""
    seconds, traffic = 0.0, 0
    for line in history:
        seconds += line["seconds"]
        traffic += line["upload_bytes"] + line["download_bytes"]
        if line["test_accuracy"] is not None and line["test_accuracy"] >= target:
            return line["round"], seconds, traffic
    return None, None, None


def usual_targets(best: float | None) -> list[float]:
    """Targets when none are given: half, 80% and 95% of the reference's best accuracy, in whole percent.

    >>> usual_targets(0.91)
    [0.46, 0.73, 0.86]
    """
    return sorted({round(best * share, 2) for share in (0.5, 0.8, 0.95)}) if best else []
