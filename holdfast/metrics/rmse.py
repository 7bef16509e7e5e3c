"""rmse: the root of the mean squared error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.metrics.metric import Metric, weighted_mean
from holdfast.metrics.predictions import Predictions
from holdfast.tasks.task import NUMBERS


@dataclass(frozen=True)
class RootMeanSquare(Metric):
    """The root of the mean squared error, in the unit of the target; the mean over targets if there are several."""

    name = "rmse"
    summary = "root of the mean squared error"
    higher_is_better = False
    lowest = 0.0
    tasks = (NUMBERS,)

    def compute(self, p: Predictions) -> float:
        assert p.outputs is not None
        return float((p.outputs - p.y).square().mean(0).sqrt().mean())

    def combined(self, values: Sequence[float], items: Sequence[int]) -> float:
        return math.sqrt(weighted_mean([v * v for v in values], items))
