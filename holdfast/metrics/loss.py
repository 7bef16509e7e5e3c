"""loss: the mean of the task's own loss."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.metrics.metric import Metric
from holdfast.metrics.predictions import Predictions
from holdfast.tasks.task import CLASS, LABELS, NUMBERS, TOKENS


@dataclass(frozen=True)
class MeanLoss(Metric):
    """The mean loss: the log loss of classes, labels and tokens, the squared error of standardised numbers."""

    name = "loss"
    summary = "mean loss of the task"
    higher_is_better = False
    lowest = 0.0
    tasks = (CLASS, LABELS, NUMBERS, TOKENS)

    def compute(self, p: Predictions) -> float:
        return float(p.loss.mean())
