"""gaussian: send noise."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.attacks.attack import Attack
from holdfast.core import rng
from holdfast.core.params import param


@dataclass(frozen=True)
class Gaussian(Attack):
    """Liars send Gaussian noise, ``factor`` times as long as the mean update of the others."""

    name = "gaussian"

    factor: float = param(10.0, "length of the noise, in mean lengths of the honest updates", low=0)

    def forge(self, rows: Tensor, lying: Tensor, key: Tensor) -> Tensor:
        lengths = torch.linalg.vector_norm(rows, dim=1)
        honest = lengths[~lying] if bool((~lying).any()) else lengths
        shape = int(lying.sum()), rows.shape[1]
        deviation: Tensor = self.factor * honest.mean() / rows.shape[1] ** 0.5
        return deviation * rng.normal(key, shape, rows.dtype).to(rows.device)
