"""What a model predicts for some samples, beside the truth: what metrics are computed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from holdfast.tasks.task import Judged, Task

SCORES = ("precision", "recall", "f1")  # of a class against all others


@dataclass(frozen=True)
class Predictions:
    """Predictions beside the truth, on the CPU; a row per item: a sample, or a token of a text.

    Attributes:
        task: The task.
        y: The targets; numbers are in the unit of the data.
        loss: The task's loss of every item, without weights, in double precision.
        outputs: What the network returned, in double precision; None where that would not fit in memory.
        hit: Whether an item is predicted right, or to what share; None for a task without classes.
    """

    task: Task
    y: Tensor
    loss: Tensor
    outputs: Tensor | None
    hit: Tensor | None

    @classmethod
    def of(cls, task: Task, chunks: Sequence[Judged]) -> Predictions:
        """Join what was judged in chunks."""
        y, loss, outputs, hit = zip(*chunks, strict=True)
        return cls(
            task,
            torch.cat(y).cpu(),
            torch.cat(loss).cpu().double(),
            None if outputs[0] is None else torch.cat(outputs).cpu().double(),
            None if hit[0] is None else torch.cat(hit).cpu().double(),
        )

    @property
    def probabilities(self) -> Tensor:
        """The probability of every output, for tasks that have probabilities."""
        assert self.outputs is not None
        return self.task.probabilities(self.outputs)

    @property
    def predicted(self) -> Tensor:
        """The class of every sample, or 0 and 1 for every label."""
        assert self.outputs is not None
        return self.task.predictions(self.outputs)

    @property
    def width(self) -> int:
        """The number of the network's outputs."""
        assert self.outputs is not None
        return self.outputs.shape[1]

    @cached_property
    def by_class(self) -> dict[str, dict[int, float]]:
        """``precision``, ``recall`` and ``f1`` of every class or label that occurs; 0 where nothing is predicted."""
        right, predicted, true = self.counts
        present = np.flatnonzero(true)
        right, predicted, true = right[present], predicted[present], true[present]
        found = (right / np.maximum(predicted, 1), right / true, 2 * right / (true + predicted))
        numbers = present.tolist()
        return {
            name: dict(zip(numbers, values.tolist(), strict=True)) for name, values in zip(SCORES, found, strict=True)
        }

    @property
    def counts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How often every class or label is predicted where it is true, is predicted, and is true."""
        y, predicted = self.y.numpy(), self.predicted.numpy()
        if y.ndim == 2:
            truth, said = y > 0, predicted > 0
            return (truth & said).sum(0), said.sum(0), truth.sum(0)
        hits, answers, truths = (np.bincount(c, minlength=self.width) for c in (y[y == predicted], predicted, y))
        return hits, answers, truths

    def rows(self, chosen: Tensor | slice) -> Predictions:
        """Return some of the items."""
        outputs, hit = (None if t is None else t[chosen] for t in (self.outputs, self.hit))
        return Predictions(self.task, self.y[chosen], self.loss[chosen], outputs, hit)
