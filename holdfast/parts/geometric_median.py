"""The geometric median: the point with the smallest sum of distances to all updates."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Part, Round


@dataclass(frozen=True)
class GeometricMedian(Part):
    """The point with the smallest sum of distances to the updates, by Weiszfeld's smoothed steps from their median:

        v  <-  sum_i a_i * delta_i / sum_i a_i,    a_i = 1 / max(nu, ||v - delta_i||)

    Unlike the median of every coordinate, it does not depend on the axes. It withstands liars as long as fewer than
    half of a cohort lie. Every client counts once. ``nu`` is measured in median distances to the starting point, so
    that the result does not depend on the scale of the updates. The paper starts from the mean, which a few liars can
    carry so far away that the steps do not suffice.
    """

    name = "geometric_median"
    paper = "Pillutla et al. 2022, Robust Aggregation for Federated Learning"
    group = "trust"
    summary = "Takes the point closest to all updates"
    robust = True
    uniform = True

    steps: int = param(32, "Weiszfeld steps", low=1, search="more steps only come closer to the geometric median")
    nu: float = param(
        1e-6, "smallest distance, relative to the median one", above=0, search="it only avoids dividing by zero"
    )

    def aggregate(self, r: Round) -> Tensor:
        return self.combine(r, r.deltas)

    def combine(self, r: Round, rows: Tensor) -> Tensor:
        flat = rows.reshape(len(rows), -1)
        v = flat.median(0).values
        apart = torch.linalg.vector_norm(flat - v, dim=1)
        least = self.nu * apart.median().clamp(min=torch.finfo(flat.dtype).tiny)
        for _ in range(self.steps):
            a = least / torch.maximum(torch.linalg.vector_norm(flat - v, dim=1), least)
            v = (a / a.sum()) @ flat
        return v.reshape(rows.shape[1:])
