"""SCAFFOLD: cancel the difference between a client's gradients and everyone's, with control variates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.method.part import TOTAL, Client, Part, Round, Tensors


@dataclass(frozen=True)
class Scaffold(Part):
    """Stochastic controlled averaging (Alg. 1, option II of the paper):

        direction = g - c_i + c
        c_i' = sum_k eta_k * g_k / sum_k eta_k
        c   <-  c + |S|/N * mean(c_i' - c_i)

    For plain SGD, ``c_i'`` is the paper's ``c_i - c - delta/(K*lr)``. Written as the mean of the client's gradients,
    weighted by the rates applied, it remains correct when other parts rescale rates, freeze blocks, clip or add
    momentum. A coordinate that was frozen throughout keeps its ``c_i``.
    """

    name = "scaffold"
    paper = "Karimireddy et al. 2020, SCAFFOLD: Stochastic Controlled Averaging for Federated Learning"
    group = "baseline"
    summary = "Cancels drift with control variates"
    sends: ClassVar[dict[str, str]] = {"change": "change of the control variate"}
    keeps = "its control variate"
    server_reads = "sums"
    linear: ClassVar[dict[str, str]] = {"change": TOTAL}

    def init_client(self, w: Tensor) -> Tensors:
        return {"c": torch.zeros_like(w)}

    def init_server(self, w: Tensor, N: int) -> Tensors:
        return {"c": torch.zeros_like(w)}

    def broadcast(self, s: Tensors, w: Tensor) -> Tensors:
        return {"c": s["c"]}

    def begin(self, c: Client) -> Tensors:
        return {"sum": c.zeros(), "eta": c.zeros_eta()}

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        seen = {"sum": c.local["sum"] + c.eta * g, "eta": c.local["eta"] + c.eta}
        return g - c.state["c"] + c.message["c"], seen

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        eta = c.local["eta"]
        mean = c.local["sum"] / torch.where(eta > 0, eta, 1.0)
        new = torch.where(eta > 0, mean, c.state["c"])
        return {"change": new - c.state["c"]}, {"c": new}

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        return {"c": s["c"] + r.total(r.uploads["change"]) / r.N}
