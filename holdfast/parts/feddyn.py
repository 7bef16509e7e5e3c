"""FedDyn: correct every client's loss until its optimum is the global one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import TOTAL, Client, Part, Round, Tensors


@dataclass(frozen=True)
class FedDyn(Part):
    """Dynamic regularisation (Alg. 1 of the paper; ``h_i`` is the client's gradient memory, ``h`` the server's state):

        direction = g - h_i + alpha * (w - w0)
        h_i  <-  h_i - alpha * delta
        h    <-  h - alpha/N * sum_S delta
        w    =   w0 + mean(delta) - h/alpha

    The quadratic term is part of the direction, not hidden in weight decay. With full participation, the model moves by
    twice the mean delta in the first round. Strength zero would be a division by zero rather than FedAvg, and is
    refused. Means count every client once, unless the part that aggregates decides otherwise. N counts all clients,
    including those without samples, whose deltas are zero.

    ``samples`` is for clients of unequal size, as in the authors' published code: with the mean number of samples per
    client, a client with n samples uses ``alpha * samples/n`` in place of alpha. The server keeps alpha.
    """

    name = "feddyn"
    paper = "Acar et al. 2021, Federated Learning Based on Dynamic Regularization"
    group = "baseline"
    summary = "Aligns local optima with the global one"
    keeps = "memory of its gradients"
    server_reads = "sums"
    linear: ClassVar[dict[str, str]] = {"delta": TOTAL}
    uniform = True

    alpha: float = param(0.01, "strength of the regulariser", above=0, search=(1e-3, 1, "log"), step_input=True)
    samples: float = param(
        0.0,
        "mean samples per client: divides alpha by a client's share; 0: alpha for all",
        low=0,
        search="it only chooses the convention by which alpha is read",
    )

    def init_client(self, w: Tensor) -> Tensors:
        return {"h": torch.zeros_like(w)}

    def init_server(self, w: Tensor, N: int) -> Tensors:
        return {"h": torch.zeros_like(w)}

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return g - c.state["h"] + self._alpha(c) * (w - c.w0), {}

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        return {}, {"h": c.state["h"] - self._alpha(c) * delta}

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        return {"h": s["h"] - self.alpha / r.N * r.total(r.deltas)}

    def server_step(self, s: Tensors, r: Round) -> Tensor:
        return r.w + r.update - s["h"] / self.alpha

    def _alpha(self, c: Client) -> Tensor | float:
        return self.alpha * self.samples / c.n.to(c.w0.dtype) if self.samples else self.alpha
