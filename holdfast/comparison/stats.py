"""The statistics of a comparison: means over seeds, paired differences, ties, and the cost of reaching a score."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from holdfast.comparison.score_text import ScoreText
from holdfast.comparison.study_schema import MetricFacts, PairedDifference, Spread, StudyEntry

CONFIDENCE = 0.95
NOT_SEEN = "no difference seen"
ACCURACY = MetricFacts()
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
    """Compare final scores with those of a reference, seed by seed: a t interval and the paired t test.

    Args:
        values: The score of every seed.
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


def verdict(difference: PairedDifference | None, higher_is_better: bool = True) -> str:
    """Judge by the interval: ``better``, ``worse`` or ``no difference seen``; empty without an interval."""
    if difference is None or difference.low is None or difference.high is None:
        return ""
    if difference.low <= 0 <= difference.high:
        return NOT_SEEN
    return "better" if (difference.low > 0) == higher_is_better else "worse"


def leaders(entries: Sequence[StudyEntry], metric: MetricFacts) -> list[StudyEntry]:
    """Return the entry with the best mean final score, and after it those that tie with it.

    An entry ties if tables show the same mean, or if the paired 95% interval of its difference from the best has 0 in
    it.
    """
    scored = [e for e in entries if e.scores.final.mean is not None]
    top = metric.best(mean for e in scored if (mean := e.scores.final.mean) is not None)
    first = next((e for e in scored if e.scores.final.mean == top), None)
    if first is None:
        return []
    return [first, *(e for e in scored if e is not first and ties(e.scores.final, first.scores.final, metric))]


def ties(one: Spread, other: Spread, metric: MetricFacts = ACCURACY) -> bool:
    """Tell whether two means are shown as the same, or no difference is seen between them, seed by seed."""
    return same_mean(one, other, metric) or verdict(paired(one.values, other.values)) == NOT_SEEN


def same_mean(one: Spread, other: Spread, metric: MetricFacts) -> bool:
    """Tell whether tables show two means as the same number."""
    text = ScoreText(metric.percent)
    return one.mean is not None and text.value(one.mean) == text.value(other.mean)


def without_warm_up(seconds: Sequence[float]) -> list[float]:
    """Return the seconds of a run's rounds without the warm-up and compilation in the first one.

    The first round counts as the median of the others if it took longer. A single round is left as it is.

    >>> without_warm_up([9.0, 1.0, 3.0, 2.0]), without_warm_up([0.5, 1.0]), without_warm_up([9.0])
    ([2.0, 1.0, 3.0, 2.0], [0.5, 1.0], [9.0])
    """
    first, rest = seconds[:1], seconds[1:]
    return [min(*first, statistics.median(rest)), *rest] if rest else list(first)


def reach(
    history: Sequence[dict[str, Any]], target: float, metric: MetricFacts = ACCURACY
) -> tuple[int | None, float | None, int | None]:
    """Return what it took until the test score first reached a target.

    Args:
        history: The lines of a run's history.
        target: The score to reach: at least this, or at most this if lower scores are better.
        metric: What is scored.

    Returns:
        Rounds, seconds without warm-up, and bytes; None if it never did.
    """
    clock = without_warm_up([line["seconds"] for line in history])
    seconds, traffic = 0.0, 0
    for line, took in zip(history, clock, strict=True):
        seconds += took
        traffic += line["upload_bytes"] + line["download_bytes"]
        score = line["test"].get(metric.metric)
        if score is not None and not metric.better(target, score):
            return line["round"], seconds, traffic
    return None, None, None


def usual_targets(best: float | None, metric: MetricFacts = ACCURACY, start: float | None = None) -> list[float]:
    """Choose targets where none are given.

    For a percentage of which more is better: half, 80% and 95% of the best score, in whole percent. For other metrics:
    half, 80% and 95% of the way from the first score to the best, with three digits.

    Args:
        best: The best score of the reference; None if it has none.
        metric: What is scored.
        start: Its score in the first evaluated round.

    Returns:
        The targets, the easiest first.

    >>> usual_targets(0.91)
    [0.46, 0.73, 0.86]
    >>> usual_targets(20.0, MetricFacts("rmse", False, False), start=100.0)
    [60.0, 36.0, 24.0]
    """
    shares = (0.5, 0.8, 0.95)
    if metric.percent and metric.higher_is_better:
        return sorted({round(best * share, 2) for share in shares}) if best else []
    if best is None or start is None or not metric.better(best, start):
        return []
    way = {float(f"{start + share * (best - start):.3g}") for share in shares}
    return sorted(way, reverse=not metric.higher_is_better)
