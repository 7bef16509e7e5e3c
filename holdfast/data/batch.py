"""A batch: some samples of one client, padded to a fixed size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class Batch:
    """Samples of one client. Where ``mask`` is false the row is padding and must not count.

    Attributes:
        x: Inputs: a tensor, or a dictionary or tuple of tensors.
        y: Labels.
        mask: Which rows are samples.
        padded: Whether some rows may be padding.
    """

    x: Any
    y: Tensor
    mask: Tensor
    padded: bool = True

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean of one value per sample, without the padding."""
        return torch.where(self.mask, values, 0.0).sum() / self.mask.sum().clamp(min=1)

    def cross_entropy(self, logits: Tensor) -> Tensor:
        """Return the mean cross-entropy, without the padding."""
        return self.mean(F.cross_entropy(logits, self.y, reduction="none"))
