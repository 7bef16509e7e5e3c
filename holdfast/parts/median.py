"""The median of every coordinate, in place of the mean."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.method.part import Part, Round


@dataclass(frozen=True)
class Median(Part):
    """The median over the cohort, coordinate by coordinate:

        update_j = median_i(delta_ij)

    For an even number of clients it is the mean of the two in the middle. Every client counts once, whatever number of
    samples it claims. As long as fewer than half of a cohort lie, every coordinate stays within the range of the honest
    values; the price is that honest clients with unusual data count little.
    """

    name = "median"
    paper = "Yin et al. 2018, Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates"
    group = "trust"
    summary = "Takes the median of every coordinate"
    robust = True
    uniform = True

    def aggregate(self, r: Round) -> Tensor:
        return self.combine(r, r.deltas)

    def combine(self, r: Round, rows: Tensor) -> Tensor:
        ordered, C = rows.sort(dim=0).values, len(rows)
        return ordered[(C - 1) // 2 : C // 2 + 1].mean(0)
