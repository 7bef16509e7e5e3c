"""Centred clipping: no update may pull the mean further than a radius."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Part, Round


@dataclass(frozen=True)
class CentredClipping(Part):
    """The mean of updates that are clipped around a centre, a few times over:

        v  <-  v + mean_i (delta_i - v) * min(1, radius / ||delta_i - v||)

    The paper starts from the last round's aggregate. Here v starts from the median of every coordinate, so that nothing
    is kept between rounds and what parts upload is treated alike. By default the radius is the median distance to v,
    which needs no knowledge of how long updates are; a radius of one's own holds for the deltas, and for what parts
    upload it is scaled by their median distance. Every client counts once. A liar moves the result by at most radius
    divided by the cohort's size in every step.
    """

    name = "centred_clipping"
    paper = "Karimireddy et al. 2021, Learning from History for Byzantine Robust Optimization"
    group = "trust"
    summary = "Clips updates around their centre"
    robust = True
    uniform = True

    radius: float | None = param(
        None, "longest distance to the centre; none: the median one", above=0, search="it follows from the updates"
    )
    steps: int = param(3, "how many times over", low=1, search="a few steps come close to the fixed point")

    def aggregate(self, r: Round) -> Tensor:
        return self.combine(r, r.deltas)

    def combine(self, r: Round, rows: Tensor) -> Tensor:
        flat = rows.reshape(len(rows), -1)
        v = flat.median(0).values
        radius = distances(flat, v).median() * self.multiple(r)
        for _ in range(self.steps):
            apart = distances(flat, v)
            kept = torch.where(apart > radius, radius / apart.clamp(min=torch.finfo(flat.dtype).tiny), 1.0)
            v = v + (kept[:, None] * (flat - v)).mean(0)
        return v.reshape(rows.shape[1:])

    def multiple(self, r: Round) -> Tensor | float:
        """Return the radius in median distances of the deltas."""
        if self.radius is None:
            return 1.0
        usual = distances(r.deltas, r.deltas.median(0).values).median()
        return self.radius / usual.clamp(min=torch.finfo(usual.dtype).tiny)


def distances(rows: Tensor, v: Tensor) -> Tensor:
    """Return how far every row is from a point."""
    norms: Tensor = torch.linalg.vector_norm(rows - v, dim=1)
    return norms
