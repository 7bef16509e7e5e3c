"""Early stopping: the round after which a run ends because its validation score does not improve any more.

It is a function of the history alone, so that a run that is resumed stops where an uninterrupted one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.training.round_record import RoundRecord

if TYPE_CHECKING:
    from holdfast.metrics.metric import Metric

Curve = Sequence[tuple[int, float]]  # rounds with their scores


def scores(records: Sequence[RoundRecord], metric: str, on: str) -> list[tuple[int, float]]:
    """Return the rounds in which a metric was measured, with its scores.

    Args:
        records: The history.
        metric: The name of the metric.
        on: ``test`` or ``validation``.

    Returns:
        Pairs in the order of the rounds.
    """
    pairs = [(r.round, getattr(r, on).get(metric)) for r in records]
    return [(t, value) for t, value in pairs if value is not None]


def best_round(curve: Curve, metric: Metric) -> int | None:
    """Return the first round with the best score; None if there is no score."""
    sign = 1 if metric.higher_is_better else -1
    return max(curve, key=lambda point: (sign * point[1], -point[0]))[0] if curve else None


def stopped(records: Sequence[RoundRecord], metric: Metric, patience: int | None) -> bool:
    """Tell whether the last evaluations on validation data brought no better score.

    Args:
        records: The history.
        metric: What is measured.
        patience: The number of evaluations to wait for a better score; None: never stop.

    Returns:
        Whether the run ends with the last of these rounds.
    """
    curve = scores(records, metric.name, "validation")
    best = best_round(curve, metric)
    return patience is not None and best is not None and sum(t > best for t, _ in curve) >= patience
