"""Serve the mean of all clients' latest models, as much published code evaluates it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.method.part import Client, Part, Round, Tensors


@dataclass(frozen=True)
class Latest(Part):
    """The model that is evaluated and handed out is the mean over all N clients, those of earlier rounds too:

        served = 1/N * sum_i w_i,    w_i the model with which client i came back last, at first the initial one

    Training goes on from the global model as ever: nothing but the score changes. With few clients per round the served
    model is far smoother than the global one, and far behind it in the first N/|S| rounds. Each client counts once.
    """

    name = "latest"
    paper = "the published code of Acar et al. 2021 (FedDyn) and of those who built on it, FedBug among them"

    def init_client(self, w: Tensor) -> Tensors:
        return {"w": w, "new": w.new_ones(())}

    def init_server(self, w: Tensor, N: int) -> Tensors:
        return {"mean": w.clone(), "first": w.clone()}

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        return {"change": w - c.state["w"], "new": c.state["new"]}, {"w": w, "new": 0 * c.state["new"]}

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        # A new client began with this round's model in its memory; in the mean it stood with the first one.
        changes = r.uploads["change"] + r.uploads["new"][:, None] * (r.w - s["first"])
        return {"mean": s["mean"] + changes.sum(0) / r.N, "first": s["first"]}

    def serve(self, s: Tensors, w: Tensor) -> Tensor:
        return s["mean"]
