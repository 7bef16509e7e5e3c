"""r2: the share of the target's variance that is explained."""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast.metrics.metric import SKLEARN, Metric
from holdfast.metrics.predictions import Predictions
from holdfast.tasks.task import NUMBERS


@dataclass(frozen=True)
class ExplainedVariance(Metric):
    """``1 - sum (y - prediction)^2 / sum (y - mean of y)^2``; the mean over targets that vary if there are several.

    A model that always predicts the mean of the test data has 0; a worse one is negative.
    """

    name = "r2"
    summary = "coefficient of determination"
    highest = 1.0
    tasks = (NUMBERS,)
    package = SKLEARN

    def compute(self, p: Predictions) -> float:
        from sklearn.metrics import r2_score

        assert p.outputs is not None
        y, predicted = p.y.double().numpy(), p.outputs.numpy()
        varies = y.min(0) < y.max(0)
        return float(r2_score(y[:, varies], predicted[:, varies])) if varies.any() else math.nan
