"""Clip the gradient by its norm."""

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

    The norm is taken over the whole model except its frozen blocks. The position in the sum matters: terms before this
    part are clipped together with the gradient, terms after it are not. The flag ``--clip`` adds it after all parts of
    the sum, before weight decay.
    """

    name = "clip"
    paper = "Pascanu et al. 2013, On the Difficulty of Training Recurrent Neural Networks"
    summary = "Clips the norm of the local direction"

    norm: float = param(10.0, "largest norm allowed", above=0, search=(0.1, 100, "log"))

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        norm = min(self.norm, 1e-8 * torch.finfo(g.dtype).max)  # neither it nor its inverse may overflow
        length = torch.linalg.vector_norm(g)
        return g * (norm / length.clamp(min=norm)), {}
