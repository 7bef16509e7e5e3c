"""FedSMOO's SAM: take the gradient uphill, in directions that the clients agree on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import MEAN, Client, Gradient, Part, Round, Tensors


@dataclass(frozen=True)
class Smoo(Part):
    """Sharpness-aware steps with one perturbation for all clients as their goal (Alg. 1 of the paper). Each client
    keeps a dual variable mu_i of the constraint s_i = s, and the server the common perturbation s:

        s_k   = rho * (g_k - mu_i - s) / ||g_k - mu_i - s||,   g_k = gradient(w)
        g     = gradient(w + s_k)
        mu_i  <-  mu_i + s_k - s                               in every step
        s     =   rho * mean_S(mu_i) / ||mean_S(mu_i)||

    This is the server's line of the authors' published code. With ``dual=last`` the server takes the mean of
    ``mu_i - s_K``, with the client's last perturbation, which the code leaves out as small. Frozen coordinates are not
    perturbed and keep their mu_i. ``fedsmoo`` adds FedDyn's correction of the model, as in the paper.
    """

    name = "smoo"
    paper = (
        "Sun et al. 2023, Dynamic Regularized Sharpness Aware Minimization in Federated Learning: Approaching Global "
        "Consistency and Smooth Landscape"
    )
    summary = "Takes gradients uphill, all alike"
    sends: ClassVar[dict[str, str]] = {"dual": "dual variable of the perturbation"}
    keeps = "its dual variable"
    server_reads = "update"
    linear: ClassVar[dict[str, str]] = {"dual": MEAN}

    rho: float = param(
        0.1, "length of the perturbations; 0 is FedAvg", low=0, search=(5e-3, 0.5, "log"), step_input=True
    )
    dual: str = param(
        "whole", "what the server averages: mu_i, or mu_i minus the last perturbation", choices=("whole", "last")
    )

    def init_client(self, w: Tensor) -> Tensors:
        return {"mu": torch.zeros_like(w)}

    def init_server(self, w: Tensor, N: int) -> Tensors:
        return {"s": torch.zeros_like(w)}

    def broadcast(self, s: Tensors, w: Tensor) -> Tensors:
        return {"s": s["s"]}

    def begin(self, c: Client) -> Tensors:
        return {"mu": c.state["mu"]} | ({"last": c.zeros()} if self.dual == "last" else {})

    def gradient(self, c: Client, grad_fn: Callable[[Tensor], Gradient], w: Tensor) -> Gradient:
        g, loss = grad_fn(w)
        worst, _ = grad_fn(w + self.perturbation(c, g))
        return worst, loss

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        s = self.perturbation(c, c.gradients[0])
        mu = c.local["mu"] + unfrozen(c, s - c.message["s"])
        return g, {"mu": mu} | ({"last": s} if self.dual == "last" else {})

    def perturbation(self, c: Client, g: Tensor) -> Tensor:
        """Return the perturbation of a step whose gradient at the model itself is ``g``."""
        return with_length(self.rho, unfrozen(c, g - c.local["mu"] - c.message["s"]))

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        mu = c.local["mu"]
        return {"dual": mu - c.local["last"] if self.dual == "last" else mu}, {"mu": mu}

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        return {"s": with_length(self.rho, r.mean(r.uploads["dual"]))}


def unfrozen(c: Client, v: Tensor) -> Tensor:
    """Return a vector with zeros at the frozen coordinates of this step."""
    return v if c.rate is None else torch.where(c.rate == 0, 0.0, v)


def with_length(length: float, v: Tensor) -> Tensor:
    """Scale a vector to a length; one of zeros stays as it is."""
    scaled: Tensor = v / torch.linalg.vector_norm(v).clamp(min=torch.finfo(v.dtype).tiny)
    return length * scaled
