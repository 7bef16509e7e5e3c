"""FedDyn: every client's loss is tilted so that its own optimum becomes the common one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Client, Part, Round, Tensors


@dataclass(frozen=True)
class FedDyn(Part):
    """Dynamic regularisation (Alg. 1 of the paper; its gradient memory is ``h_i``, its server state ``h``):

        direction = g - h_i + alpha * (w - w0)
        h_i  <-  h_i - alpha * delta
        h    <-  h - alpha/N * sum_S delta
        w    =   w0 + mean(delta) - h/alpha

    The quadratic term is part of the direction, not hidden in weight decay. With everyone in the first round the model
    moves by twice the mean delta. Strength zero is not FedAvg but a division by zero, and is refused. Means count
    every client once, unless the sum has an aggregator of its own.
    """

    name = "feddyn"
    paper = "Acar et al. 2021, Federated Learning Based on Dynamic Regularization"
    uniform = True

    alpha: float = param(0.01, "strength of the regulariser", above=0)

    def init_client(self, w: Tensor) -> Tensors:
        return {"h": torch.zeros_like(w)}

    def init_server(self, w: Tensor, N: int) -> Tensors:
        return {"h": torch.zeros_like(w)}

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return g - c.state["h"] + self.alpha * (w - c.w0), {}

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        return {}, {"h": c.state["h"] - self.alpha * delta}

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        return {"h": s["h"] - self.alpha / r.N * r.deltas.sum(0)}

    def server_step(self, s: Tensors, r: Round) -> Tensor:
        return r.w + r.update - s["h"] / self.alpha
