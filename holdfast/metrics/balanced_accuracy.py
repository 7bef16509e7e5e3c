"""balanced_accuracy: the mean over classes of the share that is predicted right."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.metrics.macro_scores import macro
from holdfast.metrics.metric import Metric
from holdfast.metrics.predictions import Predictions
from holdfast.tasks.task import CLASS


@dataclass(frozen=True)
class BalancedAccuracy(Metric):
    """The mean recall of the classes that occur in the data: a rare class counts as much as a frequent one."""

    name = "balanced_accuracy"
    summary = "mean recall over classes"
    percent = True
    tasks = (CLASS,)
    finite = True

    def compute(self, p: Predictions) -> float:
        return macro("recall", p)
