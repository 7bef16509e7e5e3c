"""FedBug: unfreeze the model bottom-up during each round."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Client, Part

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.method.config import Config
    from holdfast.method.method import Method
    from holdfast.models.net import Net


@dataclass(frozen=True)
class FedBug(Part):
    """Bottom-up gradual unfreezing (Alg. 1 of the paper). Of M blocks, input first, the local step k of K updates only

        m(k) = min(M, ceil(k*M / (P*K)))

    blocks; P is the share of the round spent unfreezing. A frozen block does not move at all: no decay, no momentum, no
    penalty. While the lower blocks move, the frozen head above them is the same for every client: a common reference.
    m(k) is computed in integers, because a ceiling in floating point is occasionally off by one.

    Unfreezing from the head down (``order=top-down``) is an ablation in the paper's Fig. 4, where it does worse than
    FedAvg. The paper counts every client once in the mean: for its tables, add ``mean(uniform)``.
    """

    name = "fedbug"
    paper = "Kao and Wang 2023, FedBug: A Bottom-Up Gradual Unfreezing Framework for Federated Learning"
    group = "paper"
    summary = "Unfreezes the model bottom-up each round"

    share: float = param(0.4, "P: share of the round spent unfreezing; 0 is FedAvg", low=0, high=1, search=(0, 1))
    unit: str = param("layer", "what is unfrozen together", choices=("layer", "stage", "block"))
    order: str = param("bottom-up", "which end is unfrozen first", choices=("bottom-up", "top-down"))

    def check(self, method: Method, config: Config, net: Net, federation: Federation) -> None:
        net.layout.blocks(self.unit)

    def rate(self, c: Client) -> Tensor:
        if self.share == 0:
            return torch.ones_like(c.lr)
        M = c.layout.blocks(self.unit)
        active = unfrozen(c.k, c.K, M, self.share)
        block = torch.arange(M, device=c.w0.device)
        if self.order == "top-down":
            block = M - 1 - block
        return c.layout.per_block((block < active).to(c.w0.dtype), self.unit)


def unfrozen(k: Tensor, K: Tensor, M: int, share: float) -> Tensor:
    """Return m(k), the number of blocks that are updated in a step.

    Args:
        k: The step, 1..K.
        K: Local steps in the round.
        M: Blocks in the model.
        share: The share of the round spent unfreezing.

    Returns:
        The number of blocks, 1..M.

    >>> K = torch.tensor(10)
    >>> [int(unfrozen(torch.tensor(k), K, 4, 0.4)) for k in range(1, 11)]
    [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]
    """
    exact = max(Fraction(str(share)).limit_denominator(10**9), Fraction(1, 10**9))
    below = exact.numerator * K
    return torch.clamp((k * (M * exact.denominator) + below - 1) // below, max=M)
