"""FedProx: pull the local model back to the global one."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Client, Part, Tensors


@dataclass(frozen=True)
class Prox(Part):
    """Adds the gradient of ``mu/2 * ||w - w0||^2``:

        direction = g + mu * (w - w0)                                       (Eq. 2 of the paper)

    It keeps local models close to the global one, at almost no cost.
    """

    name = "prox"
    paper = "Li et al. 2020, Federated Optimization in Heterogeneous Networks"
    summary = "Pulls local models to the global one"

    mu: float = param(0.01, "strength of the pull; 0 is FedAvg", low=0, search=(1e-4, 1, "log"), step_input=True)

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return g + self.mu * (w - c.w0), {}
