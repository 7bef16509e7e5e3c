"""macro_f1: the mean over classes, or labels, of the F1 score."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.metrics.macro_scores import macro
from holdfast.metrics.metric import Metric
from holdfast.metrics.predictions import Predictions
from holdfast.tasks.task import CLASS, LABELS


@dataclass(frozen=True)
class MacroF1(Metric):
    """The mean F1 score, ``2 TP / (2 TP + FP + FN)``, of the classes or labels that occur in the data."""

    name = "macro_f1"
    summary = "mean F1 score over classes or labels"
    percent = True
    tasks = (CLASS, LABELS)
    finite = True

    def compute(self, p: Predictions) -> float:
        return macro("f1", p)
