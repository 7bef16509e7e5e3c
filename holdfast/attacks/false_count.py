"""false_count: claim more samples than there are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.attacks.attack import Attack
from holdfast.core.params import param


@dataclass(frozen=True)
class FalseCount(Attack):
    """Liars claim ``factor`` times their number of samples, so that the weighted mean is theirs. Updates are honest.

    Means that count every client once do not notice it; ``--max-weight`` bounds what it gains elsewhere.
    """

    name = "false_count"

    factor: float = param(1e6, "what liars multiply their number of samples by", above=0)

    def claim(self, n: Tensor) -> Tensor:
        return (self.factor * n.double()).clamp(1, 2**47).to(torch.int64)
