"""Multi-Krum: keep the updates that lie closest to their neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.method.part import Part, Round

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.method.config import Config
    from holdfast.method.method import Method
    from holdfast.models.net import Net


@dataclass(frozen=True)
class MultiKrum(Part):
    """The mean of the ``m`` updates with the smallest scores, if ``f`` clients of a cohort may lie:

        score_i = sum of ||delta_i - delta_j||^2 over the |S| - f - 2 clients j that are closest to i

    The choice is made by the deltas; what parts upload is averaged over the same clients. Every client counts once. A
    cohort needs at least 2f + 3 clients. With clients whose data differ, an honest client with unusual data is left out
    in every round.
    """

    name = "multikrum"
    paper = "Blanchard et al. 2017, Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent"
    group = "trust"
    summary = "Averages updates close to each other"
    robust = True
    uniform = True

    f: int = param(1, "how many clients of a cohort may lie", low=0, search="it follows from how many lie")
    m: int | None = param(
        None, "how many updates to average; none: all but 2f + 2, at least one", low=1,
        search="it follows from how many lie",
    )  # fmt: skip

    def check(self, method: Method, config: Config, net: Net, federation: Federation) -> None:
        if config.cohort_size < 2 * self.f + 3:
            raise HoldfastError(
                f"{self.name} with f={self.f} needs cohorts of at least {2 * self.f + 3} clients, not "
                f"{config.cohort_size}: raise --cohort, or lower f"
            )

    def aggregate(self, r: Round) -> Tensor:
        return self.combine(r, r.deltas)

    def combine(self, r: Round, rows: Tensor) -> Tensor:
        return rows[self.chosen(r.deltas)].mean(0)

    def chosen(self, deltas: Tensor) -> Tensor:
        """Return the rows to average. A cohort that chance made small is judged by fewer neighbours, at least one."""
        C = len(deltas)
        neighbours = max(min(C - 1, 1), C - self.f - 2)
        apart = torch.stack([(deltas - one).square().sum(1) for one in deltas])
        apart.fill_diagonal_(float("inf"))
        scores = apart.sort(dim=1).values[:, :neighbours].sum(1)
        return torch.argsort(scores, stable=True)[: min(C, self.kept(C))]

    def kept(self, C: int) -> int:
        """Return how many of ``C`` updates to average."""
        return max(1, C - 2 * self.f - 2) if self.m is None else self.m
