"""precision: the share of the positive predictions that is right."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.metrics.macro_scores import positive_or_macro
from holdfast.metrics.metric import Metric
from holdfast.metrics.predictions import Predictions
from holdfast.tasks.task import CLASS, LABELS


@dataclass(frozen=True)
class Precision(Metric):
    """``TP / (TP + FP)`` of the second of two classes, the positive one; otherwise the mean of those that occur.

    It is 0 for a class that is never predicted.
    """

    name = "precision"
    summary = "share of positive predictions that is right; macro mean"
    percent = True
    tasks = (CLASS, LABELS)
    finite = True

    def compute(self, p: Predictions) -> float:
        return positive_or_macro("precision", p)
