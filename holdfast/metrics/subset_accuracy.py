"""subset_accuracy: the share of samples whose labels are all predicted right."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.metrics.metric import Metric
from holdfast.metrics.predictions import Predictions
from holdfast.tasks.task import LABELS


@dataclass(frozen=True)
class SubsetAccuracy(Metric):
    """The share of samples of which every label is predicted right; ``accuracy`` counts label by label."""

    name = "subset_accuracy"
    summary = "share of samples with all labels right"
    percent = True
    tasks = (LABELS,)

    def compute(self, p: Predictions) -> float:
        return float((p.predicted == p.y).all(1).double().mean())
