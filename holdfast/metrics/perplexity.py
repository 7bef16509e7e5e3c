"""perplexity: among how many equally likely tokens the model hesitates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast.metrics.metric import Metric
from holdfast.metrics.predictions import Predictions
from holdfast.tasks.task import TOKENS


@dataclass(frozen=True)
class Perplexity(Metric):
    """``exp`` of the mean cross-entropy per token."""

    name = "perplexity"
    summary = "exp of the mean loss per token"
    higher_is_better = False
    tasks = (TOKENS,)

    def compute(self, p: Predictions) -> float:
        mean = float(p.loss.mean())
        return math.exp(mean) if mean < 700 else math.inf
