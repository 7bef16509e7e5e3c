"""recall: the share of the positive samples that is found."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.metrics.macro_scores import positive_or_macro
from holdfast.metrics.metric import Metric
from holdfast.metrics.predictions import Predictions
from holdfast.tasks.task import CLASS, LABELS


@dataclass(frozen=True)
class Recall(Metric):
    """``TP / (TP + FN)`` of the second of two classes, the positive one; otherwise the mean of those that occur."""

    name = "recall"
    summary = "share of positives found; macro mean"
    percent = True
    tasks = (CLASS, LABELS)
    finite = True

    def compute(self, p: Predictions) -> float:
        return positive_or_macro("recall", p)
