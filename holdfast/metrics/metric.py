"""The contract of a metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar

import numpy as np
import torch

from holdfast.core.errors import HoldfastError
from holdfast.core.params import Named
from holdfast.metrics.predictions import Predictions

SKLEARN, TORCHMETRICS = "sklearn", "torchmetrics"  # packages that some metrics need
SOURCES = {SKLEARN: "scikit-learn", TORCHMETRICS: "'holdfast[metrics]'"}  # what pip installs them from


@dataclass(frozen=True)
class Metric(Named):
    """A figure that says how good a model is.

    Attributes:
        summary: What it is, in a few words.
        higher_is_better: Its direction.
        percent: Whether it is shown as a percentage.
        tasks: What targets it fits, as ``Task.targets`` names them.
        package: The package that computes it, beside torch; empty: none.
        finite: Whether it is defined only where every output is finite; packages require it.
        on_request: Whether it is computed only if a run goes by it, since its package takes long to import.
        lowest: No score is below this. A percentage is never below 0 or above 1.
        highest: No score is above this.
    """

    summary: ClassVar[str] = ""
    higher_is_better: ClassVar[bool] = True
    percent: ClassVar[bool] = False
    tasks: ClassVar[tuple[str, ...]] = ()
    package: ClassVar[str] = ""
    finite: ClassVar[bool] = False
    on_request: ClassVar[bool] = False
    lowest: ClassVar[float] = -math.inf
    highest: ClassVar[float] = math.inf

    def compute(self, p: Predictions) -> float:
        """Return the figure; NaN where it is not defined."""
        raise NotImplementedError

    def score(self, p: Predictions) -> float:
        """Return ``compute``, or NaN where there are no items, or outputs for which it is not defined."""
        strict = self.finite or bool(self.package)
        odd = strict and p.outputs is not None and not bool(torch.isfinite(p.outputs).all())
        with np.errstate(all="ignore"):
            return math.nan if odd or not len(p.y) else self.compute(p)

    def installed(self) -> bool:
        """Tell whether what it needs is there."""
        return not self.package or find_spec(self.package) is not None

    def require(self) -> None:
        """Raise an error if the package that it needs is missing."""
        if not self.installed():
            source = SOURCES.get(self.package, self.package)
            raise HoldfastError(f"the metric {self.name} needs the package {self.package}: pip install {source}")

    def combined(self, values: Sequence[float], items: Sequence[int]) -> float:
        """Return the figure of several groups of items together, as far as it follows from the figures of the groups.

        By default it is the mean, weighted by items: exact for figures that are means over items, such as accuracy and
        loss. Groups for which the figure is not defined are left out.

        Args:
            values: The figure of every group.
            items: The number of items of every group.

        Returns:
            The figure.
        """
        return weighted_mean(values, items)

    def possible(self, value: float) -> bool:
        """Tell whether a figure from elsewhere can be true; NaN can."""
        low, high = (0.0, 1.0) if self.percent else (self.lowest, self.highest)
        return math.isnan(value) or low <= value <= high


def weighted_mean(values: Sequence[float], items: Sequence[int]) -> float:
    """Return the mean of figures, weighted by items, without those that are NaN; NaN if there is none."""
    known = [(v, n) for v, n in zip(values, items, strict=True) if n and not math.isnan(v)]
    return sum(v * n for v, n in known) / sum(n for _, n in known) if known else math.nan
