"""mae: the mean absolute error."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.metrics.metric import Metric
from holdfast.metrics.predictions import Predictions
from holdfast.tasks.task import NUMBERS


@dataclass(frozen=True)
class MeanAbsolute(Metric):
    """The mean absolute error, in the unit of the target; the mean over targets if there are several."""

    name = "mae"
    summary = "mean absolute error"
    higher_is_better = False
    lowest = 0.0
    tasks = (NUMBERS,)

    def compute(self, p: Predictions) -> float:
        assert p.outputs is not None
        return float((p.outputs - p.y).abs().mean())
