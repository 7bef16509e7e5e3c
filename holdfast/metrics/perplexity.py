"""perplexity: among how many equally likely tokens the model hesitates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.metrics.metric import Metric, weighted_mean
from holdfast.metrics.predictions import Predictions
from holdfast.tasks.task import TOKENS


@dataclass(frozen=True)
class Perplexity(Metric):
    """``exp`` of the mean cross-entropy per token."""

    name = "perplexity"
    summary = "exp of the mean loss per token"
    higher_is_better = False
    lowest = 1.0
    tasks = (TOKENS,)

    def compute(self, p: Predictions) -> float:
        return _of_loss(float(p.loss.mean()))

    def combined(self, values: Sequence[float], items: Sequence[int]) -> float:
        return _of_loss(weighted_mean([math.log(v) for v in values], items))


def _of_loss(mean: float) -> float:
    return math.exp(mean) if mean < 700 or math.isnan(mean) else math.inf
