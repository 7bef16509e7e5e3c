"""next-token: the next token at every position of a text, by the cross-entropy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.tasks.task import TOKENS, Judged, Task

NOTHING = -100  # the target at a position where there is nothing to predict


@dataclass(frozen=True)
class NextToken(Task):
    """The next token at every position: outputs are [n, length, vocabulary].

    The loss of a sample is the mean cross-entropy over its positions; those with target -100 do not count.
    """

    name = "next-token"
    summary = "the next token at every position of a text"
    targets = TOKENS
    metrics = ("perplexity", "loss", "accuracy")
    floor = "token frequencies"

    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        losses = F.cross_entropy(outputs.transpose(1, 2), y, weight, ignore_index=NOTHING, reduction="none")
        return losses.sum(1) / (y != NOTHING).sum(1).clamp(min=1)

    def judge(self, outputs: Tensor, y: Tensor) -> Judged:
        there = y != NOTHING
        losses = F.cross_entropy(outputs.transpose(1, 2), y, ignore_index=NOTHING, reduction="none")
        return Judged(y[there], losses[there], None, (outputs.argmax(2) == y)[there])

    def constant(self, y: Tensor, outputs: int) -> Tensor:
        return torch.bincount(y[y != NOTHING], minlength=outputs).clamp(min=1).double().log()

    def predictions(self, outputs: Tensor) -> Tensor:
        return outputs.argmax(-1)

    def probabilities(self, outputs: Tensor) -> Tensor:
        return torch.softmax(outputs, -1)

    def strata(self, y: np.ndarray, outputs: Sequence[str] = ()) -> tuple[np.ndarray, tuple[str, ...] | None]:
        return np.zeros(len(y), np.int64), ("all",)

    def items(self, y: Tensor) -> Tensor:
        return (y != NOTHING).sum(1)

    def positions(self, y: Tensor) -> tuple[int, ...]:
        return (y.shape[1],)

    def check(self, what: str, y: Tensor, outputs: int) -> None:
        if y.dim() != 2 or y.dtype != torch.int64:
            raise HoldfastError(f"{what} must be tokens [n, length], not {y.dtype} {list(y.shape)}; convert them")
        known = y[y != NOTHING]
        if len(known) and not 0 <= int(known.min()) <= int(known.max()) < outputs:
            raise HoldfastError(
                f"{what} has tokens from {int(known.min())} to {int(known.max())}, expected 0 to {outputs - 1}, or "
                f"{NOTHING} where there is nothing to predict; fix them"
            )
