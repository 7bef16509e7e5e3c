"""Scores of a class against all others, and their mean over classes: recall, precision and F1, from scikit-learn.

The mean is over the classes, or labels, that occur in the data. So it has the same terms for every model, and a class
without samples does not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from holdfast.metrics.predictions import Predictions


def macro(score: str, p: Predictions) -> float:
    """Return the mean of ``recall``, ``precision`` or ``f1`` over the classes or labels that occur; NaN without any."""
    y, predicted = p.y.numpy(), p.predicted.numpy()
    present = np.flatnonzero((y > 0).any(0)) if y.ndim == 2 else np.unique(y)
    if not len(present):
        return math.nan
    return float(_function(score)(y, predicted, labels=present, average="macro", zero_division=0))


def positive_or_macro(score: str, p: Predictions) -> float:
    """Return the score of the positive class where there are two; otherwise the mean over classes or labels."""
    y, predicted = p.y.numpy(), p.predicted.numpy()
    if y.ndim == 2 or p.width != 2:
        return macro(score, p)
    if not (y == 1).any():
        return math.nan
    return float(_function(score)(y, predicted, pos_label=1, zero_division=0))


def _function(score: str) -> Callable[..., float]:
    from sklearn import metrics

    function: Callable[..., float] = getattr(metrics, f"{score}_score")
    return function
