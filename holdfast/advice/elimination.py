"""Sequential elimination: who falls out of a race, with a correction for many comparisons and repeated looks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from holdfast.comparison.stats import student

LEAST = 3  # seeds before anybody is judged: with two, one outlier decides


def chance(gaps: Sequence[float]) -> float:
    """Return the one-sided p-value of the paired t test that the mean of these differences is above zero.

    Args:
        gaps: Differences, one per seed.

    Returns:
        The p-value; 1 with fewer than two seeds, where nothing can be told.

    >>> round(chance([1.0, 2.0, 3.0]), 4), chance([0.5, 0.5]), chance([-0.5, -0.5]), chance([1.0])
    (0.0371, 0.0, 1.0, 1.0)
    """
    if len(gaps) < 2:
        return 1.0
    mean, error = statistics.fmean(gaps), statistics.stdev(gaps) / math.sqrt(len(gaps))
    if error == 0:
        return 0.0 if mean > 0 else 1.0
    return float(student().sf(mean / error, len(gaps) - 1))


def worse(scores: Mapping[str, Sequence[float]], level: float, looks: int) -> list[str]:
    """Return those that are worse than the leader with confidence.

    The probability that any of them falls out although it is as good as the leader is at most ``level`` over the whole
    race: each test is made at ``level / (others * looks)`` (Bonferroni).

    Args:
        scores: The scores of everybody who is still in the race, seed by seed; higher is better.
        level: The probability of an error in the whole race.
        looks: How many times the race looks, at most.

    Returns:
        Their names.
    """
    seeds = min(map(len, scores.values()))
    if len(scores) < 2 or seeds < LEAST:
        return []
    leader = max(scores, key=lambda name: statistics.fmean(scores[name]))
    threshold = level / ((len(scores) - 1) * looks)
    found = []
    for name, own in scores.items():
        gaps = [a - b for a, b in zip(scores[leader], own, strict=True)]
        if name != leader and chance(gaps) < threshold:
            found.append(name)
    return found
