"""The contract of a metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast.core.params import Named
from holdfast.metrics.predictions import Predictions


@dataclass(frozen=True)
class Metric(Named):
    """A figure that says how good a model is.

    Attributes:
        summary: What it is, in a few words.
        higher_is_better: Its direction.
        percent: Whether it is shown as a percentage.
        tasks: What targets it fits, as ``Task.targets`` names them.
    """

    summary: ClassVar[str] = ""
    higher_is_better: ClassVar[bool] = True
    percent: ClassVar[bool] = False
    tasks: ClassVar[tuple[str, ...]] = ()

    def compute(self, p: Predictions) -> float:
        """Return the figure; NaN where it is not defined."""
        raise NotImplementedError
