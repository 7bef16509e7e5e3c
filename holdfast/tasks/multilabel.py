"""multilabel: any number of labels per sample, each by its own binary cross-entropy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.tensors import double
from holdfast.tasks.task import LABELS, Judged, Task

SHOWN = 20  # combinations of labels that are groups of their own; the rarer ones share a group


@dataclass(frozen=True)
class Multilabel(Task):
    """Any number of labels per sample: outputs are logits, the loss is the mean binary cross-entropy over labels."""

    name = "multilabel"
    summary = "any number of labels per sample"
    targets = LABELS
    metrics = ("accuracy", "loss", "macro_f1", "auroc")
    floor = "majority value"

    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        losses = F.binary_cross_entropy_with_logits(outputs, y.to(outputs.dtype), reduction="none", pos_weight=weight)
        return losses.mean(1)

    def judge(self, outputs: Tensor, y: Tensor) -> Judged:
        return Judged(y, self.loss(outputs, y), outputs, double((outputs > 0) == (y > 0)).mean(1))

    def constant(self, y: Tensor, outputs: int) -> Tensor:
        positives = y.double().sum(0)
        return positives.clamp(min=1).log() - (len(y) - positives).clamp(min=1).log()

    def predictions(self, outputs: Tensor) -> Tensor:
        return (outputs > 0).to(torch.int64)

    def probabilities(self, outputs: Tensor) -> Tensor:
        return torch.sigmoid(outputs)

    def strata(self, y: np.ndarray, outputs: Sequence[str] = ()) -> tuple[np.ndarray, tuple[str, ...] | None]:
        rows, inverse, counts = np.unique(y > 0, axis=0, return_inverse=True, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        place = np.empty(len(rows), np.int64)
        place[order] = np.minimum(np.arange(len(rows)), SHOWN)
        names = [
            "+".join(outputs[k] if outputs else str(k) for k in np.flatnonzero(rows[i]).tolist()) or "none"
            for i in order[:SHOWN]
        ]
        return place[inverse.reshape(-1)], (*names, *(["others"] if len(rows) > SHOWN else []))

    def check(self, what: str, y: Tensor, outputs: int) -> None:
        if y.dim() == 2 and not bool(((y == 0) | (y == 1)).all()):
            odd = y[(y != 0) & (y != 1)][0]
            raise HoldfastError(f"{what} has the value {float(odd):g}, expected 0 or 1 for every label; convert it")
        if y.dim() != 2 or y.shape[1] != outputs:
            raise HoldfastError(
                f"{what} must be 0 or 1 for each of {outputs} labels, [n, {outputs}], not {y.dtype} {list(y.shape)}; "
                "give a column per label"
            )
