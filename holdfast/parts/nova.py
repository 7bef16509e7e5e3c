"""FedNova: normalise updates by the weight of their gradients, so that clients with more steps do not dominate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from holdfast.method.part import Client, Part, Round, Tensors

if TYPE_CHECKING:
    from holdfast.method.method import Method


@dataclass(frozen=True)
class Nova(Part):
    """Normalised averaging (Eq. 6 of the paper). A delta is ``-lr * sum_k w_k * g_k``, a sum of gradients with weights
    that add up to ``a_i``, so ``delta_i / a_i`` is the client's mean gradient, whatever it did to its steps:

        update = tau_eff * sum_i p_i * delta_i / a_i,    tau_eff = sum_i p_i * a_i,    p_i = n_i / sum n

    For plain SGD, ``a_i`` is the number of local steps K_i. Where other parts rescale rates or optimise, it is what
    really multiplied the gradients, coordinate by coordinate: ``a_i = sum_k eta_k/lr * gain_k``. Under momentum rho,
    this is the paper's ``(K - rho*(1 - rho^K)/(1 - rho)) / (1 - rho)``; with momentum that is kept between rounds,
    gradients of earlier rounds count with what is left of them. Under Adam there are no such weights, and the sum is
    refused. The update is built from deltas, so a round in which no client moves leaves the model unchanged.
    """

    name = "nova"
    paper = "Wang et al. 2020, Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization"
    summary = "Averages updates per local step"
    sends: ClassVar[dict[str, str]] = {"a": "total weight of the gradients, where steps are weighted"}
    reads_total = True
    needs_gain = "nova divides updates by the weight of their gradients, which only linear optimisers have"

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        return {} if c.total is None else {"a": c.total / c.lr}, {}

    def possible(self, uploads: Tensors) -> Tensor:
        """Require weights that are not negative."""
        a = uploads["a"]
        return (a.reshape(len(a), -1) >= 0).all(1)

    def aggregate(self, r: Round) -> Tensor:
        n = r.n.to(r.deltas.dtype)
        p, a = n / n.sum(), r.uploads.get("a", r.K.to(r.deltas.dtype))
        divisor = torch.where(a > 0, a, 1.0)
        if a.dim() == 1:
            mean: Tensor = torch.tensordot(p / divisor, r.deltas, dims=1)
            return (p * a).sum() * mean
        mean = torch.tensordot(p, r.deltas / divisor, dims=1)
        typical: Tensor = torch.tensordot(p, a, dims=1)
        return typical * mean

    def changed_since(self, format: int, method: Method, empty: bool) -> str | None:
        rescaled = method.filling("rate") or method.filling("lr")
        return "nova counted local steps, whatever their rates" if format < 4 and rescaled else None
