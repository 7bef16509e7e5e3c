"""The mean of every coordinate without its largest and smallest values."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Part, Round


@dataclass(frozen=True)
class Trimmed(Part):
    """The mean over the cohort, coordinate by coordinate, without the ``share`` of largest and of smallest values:

        update_j = mean of delta_ij over all but the b largest and the b smallest,    b = floor(share * |S|)

    Every client counts once. It withstands b liars in a cohort. With ``share`` zero it is the plain mean.
    """

    name = "trimmed"
    paper = "Yin et al. 2018, Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates"
    group = "trust"
    summary = "Leaves extremes out of the mean"
    robust = True
    uniform = True

    share: float = param(
        0.2, "share of the values to leave out at either end", low=0, below=0.5, search="it follows from how many lie"
    )

    def aggregate(self, r: Round) -> Tensor:
        return self.combine(r, r.deltas)

    def combine(self, r: Round, rows: Tensor) -> Tensor:
        cut = int(self.share * len(rows) + 1e-9)
        return rows.sort(dim=0).values[cut : len(rows) - cut].mean(0)
