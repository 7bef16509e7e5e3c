"""The server's half of a round: broadcast, aggregate, absorb, step, serve."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from holdfast.core.tensors import PerPart, Tensors, double
from holdfast.method.method import Method
from holdfast.method.part import Round
from holdfast.models.batchnorm import STATISTICS
from holdfast.models.net import Net


class Server:
    """The global model and what the parts keep at the server."""

    def __init__(
        self, net: Net, method: Method, clients: int, server_lr: float, max_weight: float | None = None
    ) -> None:
        self.net, self.method, self.N, self.server_lr = net, method, clients, server_lr
        self.max_weight = max_weight or 1.0
        self.w = net.initial.clone()
        self.states: PerPart = {p.name: p.init_server(self.w, clients) for p in method.filling("init_server")}
        if net.carries and net.batchnorm == "average":
            self.states[STATISTICS] = net.stats

    @property
    def stats(self) -> Tensors:
        """The running statistics of the global model; empty if they are not averaged."""
        return self.states.get(STATISTICS, {})

    def messages(self) -> PerPart:
        """Return what every client is sent beside the model."""
        return {p.name: p.broadcast(self.states.get(p.name, {}), self.w) for p in self.method.filling("broadcast")}

    def weights(self, n: Tensor) -> Tensor:
        """Return the weight of each client of a cohort in the mean, from their numbers of samples."""
        weights = self.counted(n)
        return capped(weights / weights.sum(), self.max_weight).to(self.w)

    def counted(self, n: Tensor) -> Tensor:
        """Return how much each client counts in the mean, before the weights are made to sum to one."""
        return double(torch.ones_like(n) if self.method.uniform else n)

    def admit(self, r: Round, uploads: PerPart) -> tuple[Round, PerPart]:
        """Let parts decide what of a cohort counts; means are then those of the robust part, if there is one."""
        for p in self.method.filling("admit"):
            r, uploads = p.admit(self.states.get(p.name, {}), r, uploads)
        robust = self.method.robust
        return (r, uploads) if robust is None else (replace(r, combine=partial(robust.combine, r)), uploads)

    def aggregate(self, r: Round, uploads: PerPart) -> Tensor:
        """Combine the deltas of a cohort, or of a slice of it."""
        part = self.method.single("aggregate")
        return part.aggregate(r.own(uploads.get(part.name, {}))) if part else r.mean(r.deltas)

    def close(self, r: Round, uploads: PerPart, absorbed: PerPart | None = None) -> None:
        """Let every part absorb the round, and move the model.

        Args:
            r: The round, with its aggregate.
            uploads: What the clients uploaded.
            absorbed: The new states of parts that have absorbed the round slice by slice.
        """
        absorbed = absorbed or {}
        if STATISTICS in uploads:
            self.states[STATISTICS] = mean_statistics(self.stats, uploads[STATISTICS], r)
        for p in self.method.filling("absorb"):
            if p.name in absorbed:
                self.states[p.name] = absorbed[p.name]
            else:
                self.states[p.name] = p.absorb(self.states.get(p.name, {}), r.own(uploads.get(p.name, {})))
        step = self.method.single("server_step")
        if step is None:
            self.w = r.w + self.server_lr * r.update
        else:
            self.w = step.server_step(self.states.get(step.name, {}), r.own(uploads.get(step.name, {})))
        moved = replace(r, net=self.net.with_stats(self.stats))
        for p in self.method.filling("tune"):
            state, own = self.states.get(p.name, {}), moved.own(uploads.get(p.name, {}))
            self.w, self.states[p.name] = p.tune(state, own, self.w)

    def digest(self, r: Round, sums: PerPart) -> None:
        """Let parts learn from a survey of all clients."""
        for name, uploads in sums.items():
            part = next(p for p in self.method.parts if p.name == name)
            self.states[name] = part.digest(self.states.get(name, {}), r.own(uploads))

    def served(self) -> Tensor:
        """Return the model to evaluate and to hand out."""
        w = self.w
        for p in self.method.filling("serve"):
            w = p.serve(self.states.get(p.name, {}), w)
        return w


def capped(weights: Tensor, most: float) -> Tensor:
    """Lower weights that are above ``most``, and share out the rest among the others in proportion.

    If the clients are too few for that, all weigh the same.

    Args:
        weights: The weights, which sum to one.
        most: The largest weight.

    Returns:
        The new weights, which sum to one.
    """
    if not len(weights):
        return weights
    if most * len(weights) <= 1:
        return torch.full_like(weights, 1 / len(weights))
    full = torch.zeros_like(weights, dtype=torch.bool)
    for _ in range(len(weights)):
        over = (weights > most) & ~full
        if not bool(over.any()):
            break
        full = full | over
        rest = torch.where(full, 0.0, weights)
        weights = torch.where(full, most, rest * (1 - most * full.sum()) / rest.sum())
    return weights


def mean_statistics(old: Tensors, rows: Tensors, r: Round) -> Tensors:
    """Return the round's mean of the clients' running statistics; counts of batches stay integers.

    Args:
        old: The statistics at the start of the round.
        rows: Those of the clients, with a client axis.
        r: The round.

    Returns:
        The new statistics.
    """
    change = r.mean(rows["running"] - old["running"])
    counted = r.mean(double(rows["batches"] - old["batches"])).round().to(old["batches"])
    return {"running": old["running"] + change, "batches": old["batches"] + counted}
