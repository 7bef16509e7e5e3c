"""FedExP: lengthen the server step when the clients disagree."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Part, Round, Tensors


@dataclass(frozen=True)
class FedExP(Part):
    """Extrapolated server step (Eq. 7 and Alg. 1 of the paper):

        eta_g = max(1, sum_i ||delta_i||^2 / (2 * |S| * (||update||^2 + eps)))
        w     = w0 + eta_g * update

    The 2 is ``factor``. Published code adds ``|S| * eps`` to the squared length of the update (``scaled``); FedBug's
    also leaves out the 2 and takes 1 for eps: ``fedexp(1, factor=1, scaled=true, average=false)``.

    The model oscillates between rounds, so the mean of the last two models is evaluated. Means count every client once,
    unless the part that aggregates decides otherwise: with ``mean(samples)``, the mean of the squares is weighted by
    samples too.
    """

    name = "fedexp"
    paper = "Jhunjhunwala et al. 2023, FedExP: Speeding Up Federated Averaging via Extrapolation"
    group = "baseline"
    summary = "Lengthens the server step on disagreement"
    uniform = True

    eps: float = param(1e-3, "keeps the step finite when the deltas cancel", above=0, search=(1e-4, 1, "log"))
    factor: float = param(
        2.0,
        "what the ratio of the squared lengths is divided by",
        above=0,
        search="it is 2 in the paper and 1 in published code",
    )
    scaled: bool = param(False, "multiply eps by the size of the cohort, as in published code")
    average: bool = param(True, "evaluate the mean of the last two models")

    @property
    def unused(self) -> tuple[str, ...]:
        return () if self.average else ("init_server", "absorb", "serve")

    def init_server(self, w: Tensor, N: int) -> Tensors:
        return {"last": w.clone()}

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        return {"last": r.w.clone()}

    def server_step(self, s: Tensors, r: Round) -> Tensor:
        squares = r.mean((r.deltas**2).sum(1))
        eps = self.eps * len(r.ids) if self.scaled else self.eps
        eta = torch.clamp(squares / (self.factor * ((r.update**2).sum() + eps)), min=1.0)
        return r.w + eta * r.update

    def serve(self, s: Tensors, w: Tensor) -> Tensor:
        return (w + s["last"]) / 2
