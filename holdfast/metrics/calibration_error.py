"""calibration_error: how far the confidence of predictions is from the share of them that is right."""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast.core.params import param
from holdfast.metrics.metric import TORCHMETRICS, Metric
from holdfast.metrics.predictions import Predictions
from holdfast.tasks.task import CLASS


@dataclass(frozen=True)
class CalibrationError(Metric):
    """The expected calibration error (Guo et al. 2017, On Calibration of Modern Neural Networks, Eq. 5):

        sum over bins b of  n_b / n * |accuracy(b) - confidence(b)|

    Confidence is the probability of the predicted class; the bins divide [0, 1] into equal parts.
    """

    name = "calibration_error"
    summary = "expected calibration error"
    higher_is_better = False
    percent = True
    tasks = (CLASS,)
    package = TORCHMETRICS
    on_request = True

    bins: int = param(15, "number of bins", low=1)

    def compute(self, p: Predictions) -> float:
        from torchmetrics.functional.classification import multiclass_calibration_error

        if p.width < 2:
            return math.nan
        # A probability of exactly 1 would be a bin of its own there, instead of a part of the last one.
        below_one = p.probabilities.clamp(max=1 - 2**-24)
        return float(multiclass_calibration_error(below_one, p.y, p.width, self.bins))
