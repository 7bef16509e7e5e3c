"""A batch: some samples of one client, padded to a fixed size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holdfast.tasks.classification import Classification
from holdfast.tasks.task import Task

CLASSIFICATION = Classification()


@dataclass
class Batch:
    """Samples of one client. Where ``mask`` is false the row is padding and must not count.

    Attributes:
        x: Inputs: a tensor, or a dictionary or tuple of tensors.
        y: Targets.
        mask: Which rows are samples.
        padded: Whether some rows may be padding.
        task: What is predicted.
        weight: A factor per output on the loss of its class or label; None: 1.
    """

    x: Any
    y: Tensor
    mask: Tensor
    padded: bool = True
    task: Task = CLASSIFICATION
    weight: Tensor | None = None

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean of one value per sample, without the padding."""
        return torch.where(self.mask, values, 0.0).sum() / self.mask.sum().clamp(min=1)

    def loss(self, outputs: Tensor) -> Tensor:
        """Return the mean loss of the task, without the padding."""
        return self.mean(self.task.loss(outputs, self.y, self.weight))


@dataclass
class StackedBatch(Batch):
    """A batch of every client, [clients, batch, ...]; means and losses are one per client."""

    def mean(self, values: Tensor) -> Tensor:
        return torch.where(self.mask, values, 0.0).sum(1) / self.mask.sum(1).clamp(min=1)

    def loss(self, outputs: Tensor) -> Tensor:
        values = self.task.loss(outputs.flatten(0, 1), self.y.flatten(0, 1), self.weight)
        return self.mean(values.reshape(self.mask.shape))
