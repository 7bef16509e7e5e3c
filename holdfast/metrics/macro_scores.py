"""Scores of a class against all others, and their mean over classes: recall, precision and F1.

The mean is over the classes, or labels, that occur in the data. So it has the same terms for every model, and a class
without samples does not count.
"""

from __future__ import annotations

import math
import statistics

from holdfast.metrics.predictions import Predictions


def macro(score: str, p: Predictions) -> float:
    """Return the mean of ``recall``, ``precision`` or ``f1`` over the classes or labels that occur; NaN without any."""
    values = p.by_class[score].values()
    return statistics.fmean(values) if values else math.nan


def positive_or_macro(score: str, p: Predictions) -> float:
    """Return the score of the positive class where there are two; otherwise the mean over classes or labels."""
    if p.y.ndim == 2 or p.width != 2:
        return macro(score, p)
    return p.by_class[score].get(1, math.nan)
