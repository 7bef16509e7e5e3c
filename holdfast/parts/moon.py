"""MOON: draw features towards the global model's and away from the client's previous ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Batch, Client, Part, Tensors
from holdfast.models.net import Out


@dataclass(frozen=True)
class Moon(Part):
    """Model-contrastive penalty (Eq. 3 of the paper); s is the cosine similarity:

        penalty = -mu * log( e^{s(z, zg)/T} / (e^{s(z, zg)/T} + e^{s(z, zp)/T}) )

    z, zg and zp are the features of the local model, the global model and the client's previous local model on the same
    batch. For a client that is drawn for the first time, the previous model is the global one. Costs two more forward
    passes per step.
    """

    name = "moon"
    paper = "Li et al. 2021, Model-Contrastive Federated Learning"
    group = "baseline"
    summary = "Contrasts global and previous features"
    keeps = "its previous model"

    mu: float = param(1.0, "strength of the penalty; 0 is FedAvg", low=0, search=(0.1, 10, "log"), step_input=True)
    T: float = param(0.5, "temperature", above=0, search=(0.1, 2, "log"), step_input=True)

    @property
    def needs(self) -> tuple[str, ...]:
        return ("features",)

    def init_client(self, w: Tensor) -> Tensors:
        return {"previous": w.clone()}

    def teachers(self, c: Client) -> Tensors:
        return {"global": c.w0, "previous": c.state["previous"]}

    def penalty(self, c: Client, out: Out, batch: Batch) -> Tensor:
        near = similarity(out.features, c.teacher["global"].features)
        old = similarity(out.features, c.teacher["previous"].features)
        return self.mu * batch.mean(F.softplus((old - near) / self.T))

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        return {}, {"previous": w}


def similarity(a: Tensor, b: Tensor) -> Tensor:
    """Return the cosine of the angle between rows. The floor inside the root keeps the gradient finite at zero."""
    floor = torch.finfo(a.dtype).eps ** 2
    return (a * b).sum(-1) * torch.rsqrt((a * a).sum(-1).clamp(min=floor) * (b * b).sum(-1).clamp(min=floor))
