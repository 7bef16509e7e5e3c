"""flip: mirror images from left to right."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.data.augmentation import Augmentation


@dataclass(frozen=True)
class Flip(Augmentation):
    """Every image is mirrored with probability ``p``."""

    name = "flip"
    p: float = param(0.5, "probability that an image is mirrored", low=0, high=1)

    @property
    def draws(self) -> int:
        return 1

    def randomly(self, images: Tensor, draw: Tensor) -> Tensor:
        mirrored = draw[:, 0] >= 1 - self.p
        return torch.where(mirrored[:, None, None, None], images.flip(3), images)
