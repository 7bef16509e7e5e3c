"""FedAdam, FedAdagrad and FedYogi: adaptive rates at the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Part, Round, Tensors

PAPER = "Reddi et al. 2021, Adaptive Federated Optimization"
BETA1 = "decay of the first moment"
BETA2 = "decay of the second moment"
TAU = "adaptivity: a smaller value adapts more"
ETA = "server learning rate"


def start(w: Tensor, tau: float) -> Tensors:
    """Return the moments before the first round: m = 0 and v = tau^2, since the paper's Alg. 2 asks for v >= tau^2."""
    return {"m": torch.zeros_like(w), "v": torch.full_like(w, tau**2)}


def step(s: Tensors, w: Tensor, eta: float, tau: float) -> Tensor:
    """Take a step without bias correction, with tau outside the root: unlike PyTorch's Adam.

    Args:
        s: The moments m and v.
        w: The model.
        eta: The server learning rate.
        tau: The adaptivity.

    Returns:
        The new model.
    """
    return w + eta * s["m"] / (torch.sqrt(s["v"]) + tau)


@dataclass(frozen=True)
class FedAdam(Part):
    """Adam at the server (Alg. 2 of the paper); u is the update:

        m  <-  beta1 * m + (1 - beta1) * u
        v  <-  beta2 * v + (1 - beta2) * u^2
        w  =   w0 + eta * m / (sqrt(v) + tau)

    There is no bias correction, and tau is outside the root, unlike in PyTorch's Adam.
    """

    name = "fedadam"
    paper = PAPER
    group = "baseline"
    summary = "Runs Adam at the server"
    server_reads = "update"
    linear: ClassVar[dict[str, str]] = {}

    eta: float = param(0.01, ETA, above=0, search=(1e-3, 1, "log"))
    beta1: float = param(0.9, BETA1, low=0, below=1, search="the usual value serves")
    beta2: float = param(0.99, BETA2, low=0, below=1, search="the usual value serves")
    tau: float = param(1e-3, TAU, above=0, search=(1e-5, 0.1, "log"))

    def init_server(self, w: Tensor, N: int) -> Tensors:
        return start(w, self.tau)

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        m = self.beta1 * s["m"] + (1 - self.beta1) * r.update
        return {"m": m, "v": self.beta2 * s["v"] + (1 - self.beta2) * r.update**2}

    def server_step(self, s: Tensors, r: Round) -> Tensor:
        return step(s, r.w, self.eta, self.tau)


@dataclass(frozen=True)
class FedAdagrad(Part):
    """Adagrad at the server (Alg. 2 of the paper); u is the update:

        m  <-  beta1 * m + (1 - beta1) * u
        v  <-  v + u^2
        w  =   w0 + eta * m / (sqrt(v) + tau)

    The paper runs it with beta1 = 0.
    """

    name = "fedadagrad"
    paper = PAPER
    group = "baseline"
    summary = "Runs Adagrad at the server"
    server_reads = "update"
    linear: ClassVar[dict[str, str]] = {}

    eta: float = param(0.01, ETA, above=0, search=(1e-3, 1, "log"))
    beta1: float = param(0.0, BETA1, low=0, below=1, search="the usual value serves")
    tau: float = param(1e-3, TAU, above=0, search=(1e-5, 0.1, "log"))

    def init_server(self, w: Tensor, N: int) -> Tensors:
        return start(w, self.tau)

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        return {"m": self.beta1 * s["m"] + (1 - self.beta1) * r.update, "v": s["v"] + r.update**2}

    def server_step(self, s: Tensors, r: Round) -> Tensor:
        return step(s, r.w, self.eta, self.tau)


@dataclass(frozen=True)
class FedYogi(Part):
    """Yogi at the server (Alg. 2 of the paper); u is the update:

        m  <-  beta1 * m + (1 - beta1) * u
        v  <-  v - (1 - beta2) * u^2 * sign(v - u^2)
        w  =   w0 + eta * m / (sqrt(v) + tau)

    Unlike in Adam, v never changes by more than a fixed share of u^2.
    """

    name = "fedyogi"
    paper = PAPER
    group = "baseline"
    summary = "Runs Yogi at the server"
    server_reads = "update"
    linear: ClassVar[dict[str, str]] = {}

    eta: float = param(0.01, ETA, above=0, search=(1e-3, 1, "log"))
    beta1: float = param(0.9, BETA1, low=0, below=1, search="the usual value serves")
    beta2: float = param(0.99, BETA2, low=0, below=1, search="the usual value serves")
    tau: float = param(1e-3, TAU, above=0, search=(1e-5, 0.1, "log"))

    def init_server(self, w: Tensor, N: int) -> Tensors:
        return start(w, self.tau)

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        u2 = r.update**2
        m = self.beta1 * s["m"] + (1 - self.beta1) * r.update
        return {"m": m, "v": s["v"] - (1 - self.beta2) * u2 * torch.sign(s["v"] - u2)}

    def server_step(self, s: Tensors, r: Round) -> Tensor:
        return step(s, r.w, self.eta, self.tau)
