"""The mean of the cohort's deltas, by samples or with every client counted once."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Part, Round


@dataclass(frozen=True)
class Mean(Part):
    """How clients are weighed in the mean:

        update = sum_i p_i * delta_i,    p_i = n_i / sum n   or   1 / |S|

    Without this part the mean is by samples, unless a part's own server formula counts every client once (FedDyn,
    FedExP). FedBug's paper uses ``mean(uniform)``, FedNLR's ``mean(samples)``: on clients of unequal size they differ.
    """

    name = "mean"
    paper = "McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data"

    weights: str = param("samples", "what a client weighs", choices=("samples", "uniform"))

    def aggregate(self, r: Round) -> Tensor:
        return r.mean(r.deltas)
