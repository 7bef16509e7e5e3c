"""classification: one class per sample, by the cross-entropy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.tasks.task import CLASS, Judged, Task


@dataclass(frozen=True)
class Classification(Task):
    """One class per sample: outputs are logits, the loss is the cross-entropy."""

    name = "classification"
    summary = "one class per sample"
    targets = CLASS
    metrics = (
        "accuracy",
        "loss",
        "balanced_accuracy",
        "macro_f1",
        "auroc",
        "calibration_error",
    )
    floor = "majority class"

    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        return F.cross_entropy(outputs, y, weight, reduction="none")

    def judge(self, outputs: Tensor, y: Tensor) -> Judged:
        return Judged(y, self.loss(outputs, y), outputs, outputs.argmax(1) == y)

    def constant(self, y: Tensor, outputs: int) -> Tensor:
        return torch.bincount(y, minlength=outputs).clamp(min=1).double().log()

    def predictions(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(1)

    def probabilities(self, outputs: Tensor) -> Tensor:
        return torch.softmax(outputs, 1)

    def strata(self, y: np.ndarray, outputs: Sequence[str] = ()) -> tuple[np.ndarray, tuple[str, ...] | None]:
        return y, None

    def check(self, what: str, y: Tensor, outputs: int) -> None:
        if y.dim() != 1 or y.dtype != torch.int64:
            raise HoldfastError(
                f"{what} must be one class per sample, not {y.dtype} {list(y.shape)}; number the classes"
            )
        if len(y) and not 0 <= int(y.min()) <= int(y.max()) < outputs:
            raise HoldfastError(
                f"{what} are {int(y.min())} to {int(y.max())}, expected 0 to {outputs - 1}; number the classes from 0"
            )
