"""Serve the mean of the clients' latest models, which much published code evaluates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import TOTAL, Client, Part, Round, Tensors

if TYPE_CHECKING:
    from holdfast.method.method import Method


@dataclass(frozen=True)
class Latest(Part):
    """The model that is evaluated and saved is a mean of the models that clients returned:

        of=all       1/N * sum_i w_i,     w_i: the last model that client i returned, at first the initial model
        of=cohort    w0 + mean_S delta    the clients of the last round alone, weighted as in the sum's mean

    Training continues from the global model as usual; only the score changes. With few clients per round, the mean of
    all changes far more smoothly than the global model, and lags far behind it in the first N/|S| rounds. Each client
    counts once. Clients without samples do not count, since they never return a model. The cohort's mean differs from
    the global model if the server does not simply add the mean, as with FedDyn.
    """

    name = "latest"
    paper = "Acar et al. 2021, the published code of FedDyn; also in code built on it, such as FedBug's"
    summary = "Scores the mean of all latest models"
    sends: ClassVar[dict[str, str]] = {
        "change": "change of the client's latest model",
        "new": "whether the client is new",
    }
    keeps = "its latest model"
    server_reads = "sums"
    linear: ClassVar[dict[str, str]] = {"change": TOTAL, "new": TOTAL}

    of: str = param("all", "whose latest models are averaged", choices=("all", "cohort"))

    @property
    def unused(self) -> tuple[str, ...]:
        return ("init_client", "end") if self.of == "cohort" else ()

    def init_client(self, w: Tensor) -> Tensors:
        return {"w": w, "new": w.new_ones(())}

    def init_server(self, w: Tensor, N: int) -> Tensors:
        return {"mean": w.clone(), "first": w.clone()} if self.of == "all" else {"mean": w.clone()}

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        return {"change": w - c.state["w"], "new": c.state["new"]}, {"w": w, "new": 0 * c.state["new"]}

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        if self.of == "cohort":
            return {"mean": r.w + r.mean(r.deltas)}
        # A new client's state is this round's model, but the mean so far has counted it with the initial model.
        changes = r.total(r.uploads["change"]) + r.total(r.uploads["new"]) * (r.w - s["first"])
        return {"mean": s["mean"] + changes / (r.occupied or r.N), "first": s["first"]}

    def serve(self, s: Tensors, w: Tensor) -> Tensor:
        return s["mean"]

    def changed_since(self, format: int, method: Method, empty: bool) -> str | None:
        return "latest counted clients without samples" if format < 3 and self.of == "all" and empty else None
