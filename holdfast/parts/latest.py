"""Serve the mean of all clients' latest models, which much published code evaluates."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.method.part import Client, Part, Round, Tensors


@dataclass(frozen=True)
class Latest(Part):
    """The model that is evaluated and saved is the mean over all N clients, not only those of the last round:

        served = 1/N * sum_i w_i,    w_i: the last model that client i returned, at first the initial model

    Training continues from the global model as usual; only the score changes. With few clients per round, the served
    model changes far more smoothly than the global one, and lags far behind it in the first N/|S| rounds. Each client
    counts once.
    """

    name = "latest"
    paper = "Acar et al. 2021, the published code of FedDyn; also in code built on it, such as FedBug's"
    summary = "Scores the mean of all latest models"
    server_reads = "sums"

    def init_client(self, w: Tensor) -> Tensors:
        return {"w": w, "new": w.new_ones(())}

    def init_server(self, w: Tensor, N: int) -> Tensors:
        return {"mean": w.clone(), "first": w.clone()}

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        return {"change": w - c.state["w"], "new": c.state["new"]}, {"w": w, "new": 0 * c.state["new"]}

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        # A new client's state is this round's model, but the mean so far has counted it with the initial model.
        changes = r.uploads["change"] + r.uploads["new"][:, None] * (r.w - s["first"])
        return {"mean": s["mean"] + changes.sum(0) / r.N, "first": s["first"]}

    def serve(self, s: Tensors, w: Tensor) -> Tensor:
        return s["mean"]
