"""Probability loss: train on the probability of the true class itself instead of its logarithm."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.method.part import Batch, Client, Part
from holdfast.models.net import Out


@dataclass(frozen=True)
class ProbabilityLoss(Part):
    """The mean absolute error between probabilities and one-hot labels (Sec. 3 of the paper), up to a factor 2:

        loss = 1 - p_y,    p = softmax(logits)

    Some public code trains on it without meaning to: its network ends in a softmax, and its loss is the negative
    log-likelihood, which expects logarithms. The gradient on the logits is that of cross-entropy times ``p_y``, so
    samples that are far from being learned hardly count.
    """

    name = "probability-loss"
    paper = "Ghosh et al. 2017, Robust Loss Functions under Label Noise for Deep Neural Networks"
    summary = "Trains on probabilities, not their logs"

    @property
    def needs(self) -> tuple[str, ...]:
        return ("classes",)

    def task_loss(self, c: Client, out: Out, batch: Batch) -> Tensor:
        p = out.logits.softmax(-1).gather(-1, batch.y[..., None]).squeeze(-1)
        weight = 1.0 if batch.weight is None else batch.weight[batch.y]
        return batch.mean(weight * (1 - p))
