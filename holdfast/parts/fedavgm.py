"""FedAvgM: momentum at the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Part, Round, Tensors


@dataclass(frozen=True)
class FedAvgM(Part):
    """Server momentum (Sec. 4.3 of the paper):

        m  <-  beta * m + update
        w  =   w0 + eta * m

    With beta = 0 and eta = 1 it is FedAvg.
    """

    name = "fedavgm"
    paper = "Hsu et al. 2019, Measuring the Effects of Non-Identical Data Distribution for Federated Classification"
    group = "baseline"
    summary = "Adds momentum at the server"
    server_reads = "update"
    linear: ClassVar[dict[str, str]] = {}

    beta: float = param(0.9, "share of the old momentum to keep; 0 is FedAvg", low=0, below=1, search=(0, 0.95))
    eta: float = param(1.0, "server learning rate", above=0, search=(0.1, 3, "log"))

    def init_server(self, w: Tensor, N: int) -> Tensors:
        return {"m": torch.zeros_like(w)}

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        return {"m": self.beta * s["m"] + r.update}

    def server_step(self, s: Tensors, r: Round) -> Tensor:
        return r.w + self.eta * s["m"]
