"""regression: one or several numbers per sample, by the squared error of standardised targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.core.tensors import double
from holdfast.tasks.task import NUMBERS, Judged, Task, finite

GROUPS = 10  # quantiles by which splits deal samples, if each has as many samples
ROUNDING = 1e-6  # a number that is smaller than this share of the range is 0: targets were scaled in single precision


@dataclass(frozen=True)
class Regression(Task):
    """Numbers per sample: the loss is the mean squared error over targets.

    The network is trained on standardised targets, so that a learning rate suits prices as well as degrees. Metrics and
    predictions are in the unit of the data.
    """

    name = "regression"
    summary = "one or several numbers per sample"
    targets = NUMBERS
    metrics = ("rmse", "loss", "mae", "r2")
    floor = "mean"

    standardise: bool = param(True, "train on targets with mean 0 and standard deviation 1")
    mean: tuple[float, ...] = param((), "mean of every target; default: of the clients' samples")
    std: tuple[float, ...] = param((), "standard deviation of every target")

    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        return (outputs - y.to(outputs.dtype)).square().mean(1)

    def judge(self, outputs: Tensor, y: Tensor) -> Judged:
        return Judged(self.in_units(y), self.loss(outputs, y), self.in_units(outputs), None)

    def in_units(self, values: Tensor) -> Tensor:
        if not self.mean:
            return values
        exact = double(values)
        mean, std = (torch.tensor(v, dtype=torch.float64, device=exact.device) for v in (self.mean, self.std))
        return exact * std + mean

    def constant(self, y: Tensor, outputs: int) -> Tensor:
        return y.double().mean(0)

    def predictions(self, outputs: Tensor) -> Tensor:
        return outputs

    def strata(self, y: np.ndarray, outputs: Sequence[str] = ()) -> tuple[np.ndarray, tuple[str, ...] | None]:
        first = self.in_units(torch.from_numpy(y)).double().numpy()[:, 0]
        groups = max(1, min(GROUPS, len(first) // GROUPS))
        edges = np.unique(np.quantile(first, np.arange(1, groups) / groups)) if groups > 1 else first[:0]
        edges = edges[edges > first.min(initial=np.inf)]  # many samples may share the smallest number
        places = np.searchsorted(edges, first, side="right").astype(np.int64)
        tiny = ROUNDING * np.ptp(first) if len(first) else 0.0
        ends = [f"{edge if abs(edge) > tiny else 0:.4g}" for edge in edges]
        if not ends:
            return places, ("all",)
        names = [f"below {ends[0]}", *(f"{a} to {b}" for a, b in pairwise(ends)), f"from {ends[-1]}"]
        return places, tuple(names)

    def check(self, what: str, y: Tensor, outputs: int) -> None:
        if y.dim() != 2 or y.shape[1] != outputs or not y.is_floating_point():
            raise HoldfastError(
                f"{what} must be {outputs} real numbers per sample, not {y.dtype} {list(y.shape)}; convert them"
            )
        finite(what, y)

    def standardised(self, y: Tensor, known: Tensor) -> Task:
        if not self.lacks_scale:
            return self
        own = y[known].double()
        std = own.std(0, correction=0)
        return self.with_scale(tuple(own.mean(0).tolist()), tuple(torch.where(std > 0, std, 1.0).tolist()))

    @property
    def lacks_scale(self) -> bool:
        """Whether the mean and standard deviation of the targets are needed and not known yet."""
        return self.standardise and not self.mean

    @property
    def scale(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The mean and standard deviation of the targets."""
        return self.mean, self.std

    def with_scale(self, mean: tuple[float, ...], std: tuple[float, ...]) -> Regression:
        return replace(self, mean=mean, std=std)

    def scaled(self, y: Tensor) -> Tensor:
        if not self.mean:
            return y
        exact = double(y)
        mean, std = (torch.tensor(v, dtype=torch.float64, device=exact.device) for v in (self.mean, self.std))
        return ((exact - mean) / std).to(y)
