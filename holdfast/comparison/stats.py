"""The statistics of a comparison: means over seeds, paired differences, and the cost of reaching an accuracy."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from holdfast.comparison.study_schema import PairedDifference, Spread

CONFIDENCE = 0.95
NOT_SEEN = "no difference seen"
Values = Sequence[float | None]


def spread(values: Values) -> Spread:
    """Return mean and standard deviation (n - 1) over seeds; both are None where a seed has no value.

    >>> spread([0.5, 1.0]).mean, round(spread([0.5, 1.0]).std, 4)
    (0.75, 0.3536)
    """
    known = [v for v in values if v is not None]
    whole = bool(known) and len(known) == len(values)
    mean = statistics.fmean(known) if whole else None
    std = statistics.stdev(known) if whole and len(known) > 1 else None
    return Spread(mean, std, list(values))


def paired(values: Values, reference: Values, to: str = "") -> PairedDifference | None:
    """Compare final accuracies with those of a reference, seed by seed: a t interval and the paired t test.

    Args:
        values: The accuracy of every seed.
        reference: That of the reference, for the same seeds.
        to: The label of the reference.

    Returns:
        The mean difference; None where a run diverged. Interval and p need two seeds and scipy. Where all differences
        are equal, the interval is that one number.
    """
    both = list(zip(values, reference, strict=True))
    gaps = [a - b for a, b in both if a is not None and b is not None]
    n = len(gaps)
    if not gaps or n < len(both):
        return None
    mean = statistics.fmean(gaps)
    t = student()
    if n < 2 or t is None:
        return PairedDifference("final", to, mean, None, None, None, n)
    error = statistics.stdev(gaps) / math.sqrt(n)
    half = float(t.ppf((1 + CONFIDENCE) / 2, n - 1)) * error
    certain = 1.0 if mean == 0 else 0.0  # all differences are equal
    p = 2 * float(t.sf(abs(mean) / error, n - 1)) if error > 0 else certain
    return PairedDifference("final", to, mean, mean - half, mean + half, p, n)


def student() -> Any:
    """Return Student's t distribution, or None where scipy is not installed."""
    try:
        from scipy.stats import t
    except ImportError:
        return None
    return t


def verdict(difference: PairedDifference | None) -> str:
    """Judge by the interval: ``better``, ``worse`` or ``no difference seen``; empty without an interval."""
    if difference is None or difference.low is None or difference.high is None:
        return ""
    if difference.low > 0:
        return "better"
    return "worse" if difference.high < 0 else NOT_SEEN


def reach(history: Sequence[dict[str, Any]], target: float) -> tuple[int | None, float | None, int | None]:
    """Return the rounds, seconds and bytes until the test accuracy first reached a target; None if it never did."""
    seconds, traffic = 0.0, 0
    for line in history:
        seconds += line["seconds"]
        traffic += line["upload_bytes"] + line["download_bytes"]
        if (line["test"].get("accuracy") or 0) >= target:
            return line["round"], seconds, traffic
    return None, None, None


def usual_targets(best: float | None) -> list[float]:
    """Choose targets where none are given: half, 80% and 95% of the reference's best accuracy, in whole percent.

    >>> usual_targets(0.91)
    [0.46, 0.73, 0.86]
    """
    return sorted({round(best * share, 2) for share in (0.5, 0.8, 0.95)}) if best else []
