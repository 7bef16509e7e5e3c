"""Gradient clipping by norm."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Client, Part, Tensors


@dataclass(frozen=True)
class Clip(Part):
    """Shortens a direction that is too long:

        direction = g * min(1, norm / ||g||)

    The norm runs over the whole model without its frozen blocks. Where it stands in the sum matters: terms before it
    are clipped with the gradient, terms behind it are not. The flag ``--clip`` adds it behind the other parts and
    before weight decay.
    """

    name = "clip"
    paper = "Pascanu et al. 2013, On the Difficulty of Training Recurrent Neural Networks"

    norm: float = param(10.0, "longest direction allowed", above=0)

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        length = torch.linalg.vector_norm(g)
        return g * (self.norm / length.clamp(min=self.norm)), {}
