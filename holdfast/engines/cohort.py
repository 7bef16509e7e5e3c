"""What goes into an engine and what comes out: the clients of one trip, row by row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.engines.batches import BatchPlan
from holdfast.engines.client_update import ClientInfo, PerPart


@dataclass(frozen=True)
class Cohort:
    """The clients to train: who they are, their parts' states, their batches, and where each starts from."""

    who: ClientInfo  # every field has a leading client axis
    states: PerPart  # likewise
    plan: BatchPlan
    start: Tensor | None = None  # [C, P]; None: from the global model

    @property
    def size(self) -> int:
        return len(self.who.id)

    def pick(self, rows: list[int]) -> Cohort:
        """These clients, in this order."""
        at = torch.tensor(rows, device=self.who.id.device)
        states = tree_map(lambda t: t[at], self.states)
        start = None if self.start is None else self.start[at]
        return Cohort(ClientInfo(*(f[at] for f in self.who)), states, self.plan.pick(rows), start)

    def rows(self, start: int, stop: int) -> Cohort:
        """Some of the clients, padded to the largest among them."""
        who = ClientInfo(*(field[start:stop] for field in self.who))
        most = int(who.n.max())
        who = who._replace(own=who.own[:, :most], there=who.there[:, :most])
        states = tree_map(lambda t: t[start:stop], self.states)
        begin = None if self.start is None else self.start[start:stop]
        return Cohort(who, states, self.plan.rows(start, stop), begin)


@dataclass(frozen=True)
class Trained:
    """What the clients come back with, row by row."""

    deltas: Tensor  # [C, P]
    uploads: PerPart  # leading client axis
    states: PerPart  # likewise
    loss: Tensor  # [C] mean task loss over the local steps


def join(pieces: list[Trained]) -> Trained:
    """The rows of several slices of a cohort, one below the other."""
    if len(pieces) == 1:
        return pieces[0]
    return Trained(
        torch.cat([p.deltas for p in pieces]),
        cat([p.uploads for p in pieces]),
        cat([p.states for p in pieces]),
        torch.cat([p.loss for p in pieces]),
    )


def cat(rows: list[PerPart]) -> PerPart:
    return {part: {k: torch.cat([r[part][k] for r in rows]) for k in rows[0][part]} for part in rows[0]}


def stack(rows: list[PerPart]) -> PerPart:
    """One dictionary with a client axis from one per client."""
    return (
        {part: {k: torch.stack([r[part][k] for r in rows]) for k in rows[0][part]} for part in rows[0]} if rows else {}
    )
