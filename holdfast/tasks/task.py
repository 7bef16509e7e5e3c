"""The contract of a task: loss, prediction, and what splits and hold-outs go by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.params import Named

CLASS, LABELS, NUMBERS, TOKENS = "class", "labels", "numbers", "tokens"  # what the targets of a task may be


class Judged(NamedTuple):
    """Outputs beside their targets, one row per item: a sample, or a token of a text.

    Attributes:
        y: The targets.
        loss: The loss of every item, without weights.
        outputs: What the network returned; None where that would not fit in memory.
        hit: Whether the prediction is right; None for a task without classes.
    """

    y: Tensor
    loss: Tensor
    outputs: Tensor | None
    hit: Tensor | None


@dataclass(frozen=True)
class Task(Named):
    """What a network is trained to do. To write your own, derive from the task that has the same kind of targets.

    Attributes:
        summary: What it predicts, in a few words.
        targets: What a sample's target is: a ``class``, several ``labels``, ``numbers`` or ``tokens``.
        metrics: The metrics that fit, the default first.
        floor: What ``constant`` predicts, as tables call it.
    """

    summary: ClassVar[str] = ""
    targets: ClassVar[str] = CLASS
    metrics: ClassVar[tuple[str, ...]] = ()
    floor: ClassVar[str] = ""

    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the loss of every sample.

        Args:
            outputs: What the network returned, [n, outputs].
            y: The targets.
            weight: A factor per output on the loss of its class or label; None: 1.

        Returns:
            One value per sample, [n].
        """
        raise NotImplementedError

    def judge(self, outputs: Tensor, y: Tensor) -> Judged:
        """Compare outputs with targets, as metrics need it; by default an item is a sample."""
        return Judged(y, self.loss(outputs, y), outputs, None)

    def constant(self, y: Tensor, outputs: int) -> Tensor | None:
        """Return the outputs of the best model without inputs, [outputs], for given targets; None: there is none.

        A class, label or token that does not occur counts as one sample, so that no probability is 0.
        """
        return None

    def in_units(self, outputs: Tensor) -> Tensor:
        """Return outputs, or targets as the loss takes them, in the unit of the data; by default as they are."""
        return outputs

    def predictions(self, outputs: Tensor) -> Tensor:
        """Return what the network predicts, from outputs in the unit of the data."""
        raise NotImplementedError

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Return the probability of every output; a task without probabilities raises an error."""
        raise HoldfastError(f"{self.name} has no probabilities: use predict")

    def strata(self, y: np.ndarray, outputs: Sequence[str] = ()) -> tuple[np.ndarray, tuple[str, ...] | None]:
        """Group samples by their targets. Splits deal these groups, and hold-outs keep their shares.

        Args:
            y: The targets.
            outputs: The names of the outputs, if they are known.

        Returns:
            The group of every sample from 0, int64 [n], and the groups' names; None: those of the outputs.
        """
        raise NotImplementedError

    def positions(self, y: Tensor) -> tuple[int, ...]:
        """Return the axes of an output between the samples and the outputs; by default there are none."""
        return ()

    def items(self, y: Tensor) -> Tensor:
        """Return how many items ``judge`` makes of every sample, int64 [n]; by default one."""
        return torch.ones(len(y), dtype=torch.int64, device=y.device)

    def blank(self, samples: int, positions: Sequence[int], outputs: int) -> Tensor:
        """Return targets of the right type and shape.

        Args:
            samples: How many.
            positions: The axes of an output between the samples and the outputs.
            outputs: The number of outputs.

        Returns:
            Zeros.
        """
        if self.targets == CLASS:
            return torch.zeros(samples, dtype=torch.int64)
        if self.targets == TOKENS:
            return torch.zeros(samples, *positions, dtype=torch.int64)
        return torch.zeros(samples, outputs)

    def check(self, what: str, y: Tensor, outputs: int) -> None:
        """Raise an error for targets that this task cannot have.

        Args:
            what: The name of the targets, for the error.
            y: The targets.
            outputs: The number of the network's outputs.
        """
        raise NotImplementedError

    def standardised(self, y: Tensor, known: Tensor) -> Task:
        """Return the task with the scale of its targets, from those of the clients' samples with numbers ``known``."""
        return self

    @property
    def lacks_scale(self) -> bool:
        """Whether targets must be scaled before training, and it is not known yet by what."""
        return False

    @property
    def scale(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The mean and standard deviation by which targets are scaled; empty if they are not."""
        return (), ()

    def with_scale(self, mean: tuple[float, ...], std: tuple[float, ...]) -> Task:
        """Return the task with the mean and standard deviation of its targets."""
        return self

    def scaled(self, y: Tensor) -> Tensor:
        """Return the targets as the loss takes them; by default as they are."""
        return y

    def described(self, outputs: int) -> str:
        """Say in a few words what is predicted, such as ``10 classes``."""
        one, many = {
            CLASS: ("class", "classes"), LABELS: ("label", "labels"), NUMBERS: ("target", "targets"),
            TOKENS: ("token", "tokens"),
        }[self.targets]  # fmt: skip
        return f"{outputs} {one if outputs == 1 else many}"

    @property
    def has_classes(self) -> bool:
        """Whether the target of a sample is one class."""
        return self.targets == CLASS


def finite(what: str, y: Tensor) -> None:
    """Raise an error if targets are NaN or infinite."""
    bad = (~torch.isfinite(y.flatten(1)).all(1)).nonzero()
    if len(bad):
        raise HoldfastError(f"{what} has NaN or infinite numbers, first in sample {int(bad[0])}; clean it")
