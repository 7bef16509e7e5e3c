"""inner_product: turn the mean around."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.attacks.attack import Attack, honest_mean
from holdfast.core.params import param


@dataclass(frozen=True)
class InnerProduct(Attack):
    """Liars agree on the negative mean of the honest updates (Xie et al. 2020, Fall of Empires: Breaking
    Byzantine-tolerant SGD by Inner Product Manipulation):

        -epsilon * mean

    With m liars among C, the plain mean points the wrong way if epsilon is above (C - m)/m. A small epsilon is meant
    for defences that pick updates close to each other.
    """

    name = "inner_product"

    epsilon: float = param(10.0, "how long the forged update is, in honest means", low=0)

    def forge(self, rows: Tensor, lying: Tensor, key: Tensor) -> Tensor:
        return torch.stack([-self.epsilon * honest_mean(rows, lying)] * int(lying.sum()))
