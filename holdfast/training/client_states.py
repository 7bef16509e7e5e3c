"""The parts' states at the clients: a row per client, made when the client is first drawn."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.engines.client_update import PerPart
from holdfast.engines.cohort import stack
from holdfast.method.method import Method
from holdfast.training.state_store import StateStore


class ClientStates:
    """Rows by client id. ``changed`` names the rows written since the last checkpoint."""

    def __init__(self, method: Method, rows: StateStore | None = None) -> None:
        self.stateful = method.filling("init_client")
        self.rows: StateStore = {} if rows is None else rows
        self.changed: set[int] = set()

    def gather(self, ids: Iterable[int], w: Tensor) -> PerPart:
        """The states of some clients with a client axis; new clients start from the global model ``w``."""
        return stack([self.rows.get(i) or self._fresh(w) for i in ids])

    def scatter(self, ids: list[int], states: PerPart) -> None:
        """Keep the new states of these clients."""
        if not self.stateful:
            return
        for row, i in enumerate(ids):
            self.rows[i] = tree_map(lambda t, r=row: t[r].clone(), states)
            self.changed.add(i)

    def _fresh(self, w: Tensor) -> PerPart:
        return {p.name: p.init_client(w) for p in self.stateful}


def nbytes(tensors: PerPart) -> int:
    """How many bytes travel."""
    return sum(t.numel() * t.element_size() for part in tensors.values() for t in part.values())


def finite_rows(tensors: PerPart, deltas: Tensor) -> Tensor:
    """[C]: true where a client's delta and uploads are all finite."""
    good = finite(deltas)
    for part in tensors.values():
        for t in part.values():
            good = good & finite(t.reshape(len(t), -1))
    return good


def finite(rows: Tensor) -> Tensor:
    """[C]: true where a row [C, P] is finite: a NaN or an infinity shows in its extremes."""
    if not rows.is_floating_point() or rows.shape[1] == 0:
        return torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    return torch.isfinite(rows.amin(1)) & torch.isfinite(rows.amax(1))  # each is many times faster than aminmax
