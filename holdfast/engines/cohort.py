"""What goes into an engine and what comes out of it: the clients of one trip, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.core.tensors import PerPart, concatenate
from holdfast.engines.batches import BatchPlan
from holdfast.engines.local_training import ClientInfo


@dataclass(frozen=True)
class Cohort:
    """The clients to train. Rows are clients."""

    info: ClientInfo  # every field has a leading client axis
    states: PerPart  # likewise
    plan: BatchPlan
    start: Tensor | None = None  # [C, P], where each client starts; None: from the global model

    @property
    def size(self) -> int:
        return len(self.info.id)

    def pick(self, rows: list[int]) -> Cohort:
        """Return these clients, in this order."""
        at = torch.tensor(rows, device=self.info.id.device)
        states = tree_map(lambda t: t[at], self.states)
        start = None if self.start is None else self.start[at]
        return Cohort(ClientInfo(*(f[at] for f in self.info)), states, self.plan.pick(rows), start)

    def rows(self, start: int, stop: int) -> Cohort:
        """Return a range of the clients, padded to the largest among them."""
        info = ClientInfo(*(field[start:stop] for field in self.info))
        most = int(info.n.max())
        info = info._replace(samples=info.samples[:, :most], valid=info.valid[:, :most])
        states = tree_map(lambda t: t[start:stop], self.states)
        begin = None if self.start is None else self.start[start:stop]
        return Cohort(info, states, self.plan.rows(start, stop), begin)


@dataclass(frozen=True)
class CohortUpdate:
    """What the clients return from a trip. Rows are clients.

    The states are not kept yet: the caller decides which of them to commit.
    """

    ids: Tensor  # [C]
    n: Tensor  # [C] samples
    K: Tensor  # [C] local steps
    deltas: Tensor  # [C, P], local minus global
    uploads: PerPart  # what the parts upload beside the deltas, with a client axis
    states: PerPart  # the parts' new states at the clients, with a client axis
    loss: Tensor  # [C] mean task loss over the local steps

    def rows(self, at: Tensor) -> CohortUpdate:
        """Return the rows that an index or a mask selects."""
        uploads, states = tree_map(lambda t: t[at], (self.uploads, self.states))
        return CohortUpdate(self.ids[at], self.n[at], self.K[at], self.deltas[at], uploads, states, self.loss[at])


def join(slices: Sequence[CohortUpdate]) -> CohortUpdate:
    """Join the updates of several slices of a cohort."""
    if len(slices) == 1:
        return slices[0]
    ids, n, K, deltas, loss = (
        torch.cat([getattr(s, name) for s in slices]) for name in ("ids", "n", "K", "deltas", "loss")
    )
    uploads, states = (concatenate([getattr(s, name) for s in slices]) for name in ("uploads", "states"))
    return CohortUpdate(ids, n, K, deltas, uploads, states, loss)
