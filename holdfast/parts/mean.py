"""Choose how the mean weights the clients: by samples, or every client once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Part, Round


@dataclass(frozen=True)
class Mean(Part):
    """How clients are weighted in the mean:

        update = sum_i p_i * delta_i,    p_i = n_i / sum n   or   1 / |S|

    Without this part, clients are weighted by samples, unless another part's server formula counts every client once
    (FedDyn, FedExP). FedBug's paper uses ``mean(uniform)``, FedNLR's ``mean(samples)``; they differ if clients have
    unequal numbers of samples.
    """

    name = "mean"
    paper = "McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data"
    summary = "Weights clients by samples or equally"
    server_reads = "sums"
    linear: ClassVar[dict[str, str]] = {}

    weights: str = param("samples", "how clients are weighted", choices=("samples", "uniform"))

    @property
    def uniform(self) -> bool:
        return self.weights == "uniform"

    def aggregate(self, r: Round) -> Tensor:
        return r.mean(r.deltas)
