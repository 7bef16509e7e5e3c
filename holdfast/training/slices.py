"""A cohort that is trained slice by slice: keep as little of the slices in memory as the parts allow.

Where no part needs all deltas at once, every slice is aggregated by itself and then dropped; the update is the mean of
the slices' aggregates, weighted by what their clients count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.core.tensors import PerPart
from holdfast.engines.cohort import CohortUpdate
from holdfast.method.part import NONE, Round
from holdfast.training.server import Server


class CohortRows:
    """Rows of tensors, written to their final place as they arrive: joining them later would hold everything twice.

    Args:
        ids: The clients of the cohort, ascending; the rows get this order.
    """

    def __init__(self, ids: Tensor) -> None:
        self.ids = ids
        self.arrived = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
        self.tensors: Any = None

    def write(self, ids: Tensor, rows: Any) -> None:
        """Write the rows of some clients; ``rows`` is any tree of tensors with a client axis."""
        if self.tensors is None:
            self.tensors = tree_map(lambda t: t.new_empty(len(self.ids), *t.shape[1:]), rows)
        places = torch.searchsorted(self.ids, ids)
        tree_map(lambda all, some: all.index_copy_(0, places, some), self.tensors, rows)
        self.arrived[places] = True

    def read(self) -> Any:
        """Return the rows of the clients that have arrived."""
        if bool(self.arrived.all()):
            return self.tensors
        return tree_map(lambda t: t[self.arrived], self.tensors)


class SliceSums:
    """What the server keeps of a cohort whose slices are aggregated one by one.

    Args:
        server: The server; its states change only when the round is closed.
        view: Returns a slice as parts see it at the server.

    Attributes:
        absorbed: The new states of the parts that absorb slice by slice.
    """

    def __init__(self, server: Server, view: Callable[[CohortUpdate], Round]) -> None:
        self.server, self.view = server, view
        self.by_slice = [p for p in server.method.filling("absorb") if p.server_reads == "sums"]
        self.absorbed: PerPart = {p.name: server.states.get(p.name, {}) for p in self.by_slice}
        self.aggregates: list[Tensor] = []
        self.counted: list[Tensor] = []

    def add(self, update: CohortUpdate) -> PerPart:
        """Aggregate and absorb a slice; return the uploads that must be kept for the whole cohort."""
        r, uploads = self.view(update), update.uploads
        self.aggregates.append(self.server.aggregate(r, uploads))
        self.counted.append(self.server.counted(update.n).sum())
        for p in self.by_slice:
            self.absorbed[p.name] = p.absorb(self.absorbed[p.name], r.own(uploads.get(p.name, {})))
        return {name: tensors for name, tensors in uploads.items() if name not in self.absorbed}

    def update(self) -> Tensor:
        """Return the aggregate of the whole cohort."""
        weights = torch.stack(self.counted)
        rows = torch.stack(self.aggregates)
        mean: Tensor = torch.tensordot((weights / weights.sum()).to(rows.dtype), rows, dims=1)
        return mean


class CohortCollector:
    """Collects the updates of a cohort.

    Args:
        ids: The clients of the cohort.
        slices: The number of slices in which it is trained.
        sums: Takes the deltas of each slice, if no part needs them all at once.

    Attributes:
        empty: Whether nothing has been collected.
    """

    def __init__(self, ids: Tensor, slices: int, sums: SliceSums | None) -> None:
        self.rows = CohortRows(ids) if slices > 1 else None
        self.sums = sums
        self.only: CohortUpdate | None = None
        self.empty = True

    def add(self, update: CohortUpdate) -> None:
        """Take in a slice; the states at the clients are not kept."""
        self.empty = False
        if self.rows is None:
            self.only = update
            return
        uploads = update.uploads if self.sums is None else self.sums.add(update)
        deltas = {"deltas": update.deltas} if self.sums is None else {}
        small = {"ids": update.ids, "n": update.n, "K": update.K, "loss": update.loss}
        self.rows.write(update.ids, small | deltas | {"uploads": uploads})

    def collected(self) -> CohortUpdate:
        """Return the update of the cohort; its deltas are NaN if they were summed."""
        if self.rows is None:
            assert self.only is not None
            return self.only
        return CohortUpdate(**({"deltas": NONE} | self.rows.read()), states={})
