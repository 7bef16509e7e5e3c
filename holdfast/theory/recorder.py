"""A part that changes nothing and records what the clients did."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.method.part import Client, Part, Round, Tensors
from holdfast.training.round import Trainer


@dataclass(frozen=True)
class Recorder(Part):
    """Records the last round: every client's delta and mean learning rate, and the server's update."""

    name = "recorder"
    internal = True

    def begin(self, c: Client) -> Tensors:
        return {"sum": c.lr * 0, "steps": c.lr * 0}

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return g, {"sum": c.local["sum"] + c.eta.mean(), "steps": c.local["steps"] + 1}

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        return {"rate": c.local["sum"] / c.local["steps"]}, {}

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        return {"ids": r.ids, "deltas": r.deltas, "rates": r.uploads["rate"], "update": r.update}


def recorded(simulation: Trainer) -> Tensors:
    """Return what was recorded of the last round."""
    return simulation.server.states[Recorder.name]
