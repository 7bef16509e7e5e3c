"""FedCM: mix the last global update into every local step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import MEAN, Client, Part, Round, Tensors


@dataclass(frozen=True)
class FedCM(Part):
    """Client-level momentum (Alg. 2 of the paper):

        direction = alpha * g + (1 - alpha) * D
        D  <-  -update / mean_i(sum_k eta_k * gain_k)

    ``D`` is the last global update expressed as a gradient. For plain SGD its denominator is ``lr * K`` of the round it
    came from. With rescaled rates or unequal K, it is the cohort's mean of the rates applied, per coordinate. A local
    optimiser multiplies a constant direction by its gain, so it counts too; one without a gain, such as Adam, is
    refused. D is zero in the first round, and for every coordinate that no client moved.
    """

    name = "fedcm"
    paper = "Xu et al. 2021, FedCM: Federated Learning with Client-level Momentum"
    group = "baseline"
    summary = "Mixes the last update into local steps"
    sends: ClassVar[dict[str, str]] = {"eta": "total weight of the gradients in the delta"}
    server_reads = "update"
    linear: ClassVar[dict[str, str]] = {"eta": MEAN}
    needs_gain = "fedcm divides updates by the weight of their gradients, which only linear optimisers have"

    alpha: float = param(
        0.1,
        "weight of the client's own gradient; 1 is FedAvg",
        above=0,
        high=1,
        search=(0.01, 1, "log"),
        step_input=True,
    )

    def init_server(self, w: Tensor, N: int) -> Tensors:
        return {"D": torch.zeros_like(w)}

    def broadcast(self, s: Tensors, w: Tensor) -> Tensors:
        return {"D": s["D"]}

    def begin(self, c: Client) -> Tensors:
        return {"eta": c.zeros_eta()}

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        mixed = self.alpha * g + (1 - self.alpha) * c.message["D"]
        return mixed, {"eta": c.local["eta"] + c.weight}

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        return {"eta": c.local["eta"]}, {}

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        eta = r.mean(r.uploads["eta"])
        return {"D": torch.where(eta > 0, -r.update / torch.where(eta > 0, eta, 1.0), 0.0)}
