"""log_loss: minus the mean log-probability of the truth."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F

from holdfast.metrics.metric import Metric
from holdfast.metrics.predictions import Predictions
from holdfast.tasks.task import CLASS, LABELS


@dataclass(frozen=True)
class LogLoss(Metric):
    """The mean cross-entropy, in nats; for labels the mean over labels as well.

    It is the task's loss, unless a task of your own trains with another one.
    """

    name = "log_loss"
    summary = "minus the mean log-probability of the truth"
    higher_is_better = False
    lowest = 0.0
    tasks = (CLASS, LABELS)

    def compute(self, p: Predictions) -> float:
        assert p.outputs is not None
        if p.y.dim() == 2:
            return float(F.binary_cross_entropy_with_logits(p.outputs, p.y.double()))
        return float(F.cross_entropy(p.outputs, p.y))
