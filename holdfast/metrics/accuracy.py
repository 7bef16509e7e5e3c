"""accuracy: the share of items that are predicted right."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.metrics.metric import Metric
from holdfast.metrics.predictions import Predictions
from holdfast.tasks.task import CLASS, LABELS, TOKENS


@dataclass(frozen=True)
class Accuracy(Metric):
    """The share of samples, labels or tokens that are predicted right."""

    name = "accuracy"
    summary = "share of right predictions"
    percent = True
    tasks = (CLASS, LABELS, TOKENS)

    def compute(self, p: Predictions) -> float:
        assert p.hit is not None
        return float(p.hit.mean())
