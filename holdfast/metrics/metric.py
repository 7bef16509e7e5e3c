"""The contract of a metric."""

from __future__ import annotations

import math
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
        on_request: Whether it is computed only if a run goes by it, since its package takes long to import.
    """

    summary: ClassVar[str] = ""
    higher_is_better: ClassVar[bool] = True
    percent: ClassVar[bool] = False
    tasks: ClassVar[tuple[str, ...]] = ()
    package: ClassVar[str] = ""
    on_request: ClassVar[bool] = False

    def compute(self, p: Predictions) -> float:
        """Return the figure; NaN where it is not defined."""
        raise NotImplementedError

    def score(self, p: Predictions) -> float:
        """Return ``compute``, or NaN where there are no items, or outputs that no package accepts: NaN and infinity."""
        odd = p.outputs is not None and bool(self.package) and not bool(torch.isfinite(p.outputs).all())
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
