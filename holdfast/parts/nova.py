"""FedNova: clients that took more steps do not pull harder."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.method.part import Part, Round


@dataclass(frozen=True)
class Nova(Part):
    """Normalised averaging (Eq. 6 of the paper) for plain SGD, where ``a_i`` is the number of local steps:

        update = tau_eff * sum_i p_i * delta_i / K_i,    tau_eff = sum_i p_i * K_i,    p_i = n_i / sum n

    Parts that rescale rates do not enter ``a_i``: it counts steps, as the paper's does for SGD of one rate. Built on
    deltas: a round in which nobody moves leaves the model as it is.
    """

    name = "nova"
    paper = "Wang et al. 2020, Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization"

    def aggregate(self, r: Round) -> Tensor:
        n, K = r.n.to(r.deltas.dtype), r.K.to(r.deltas.dtype)
        p = n / n.sum()
        mean: Tensor = torch.tensordot(p / K.clamp(min=1), r.deltas, dims=1)
        return (p * K).sum() * mean
