"""FedNova: normalise updates by local steps, so that clients with more steps do not dominate."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.method.part import Part, Round


@dataclass(frozen=True)
class Nova(Part):
    """Normalised averaging (Eq. 6 of the paper) for plain SGD, where ``a_i`` is the number of local steps:

        update = tau_eff * sum_i p_i * delta_i / K_i,    tau_eff = sum_i p_i * K_i,    p_i = n_i / sum n

    Rescaled rates do not change ``a_i``: it counts steps, as in the paper for SGD with a constant rate. The update is
    built from deltas, so a round in which no client moves leaves the model unchanged.
    """

    name = "nova"
    paper = "Wang et al. 2020, Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization"
    summary = "Averages updates per local step"

    def aggregate(self, r: Round) -> Tensor:
        n, K = r.n.to(r.deltas.dtype), r.K.to(r.deltas.dtype)
        p = n / n.sum()
        mean: Tensor = torch.tensordot(p / K.clamp(min=1), r.deltas, dims=1)
        return (p * K).sum() * mean
