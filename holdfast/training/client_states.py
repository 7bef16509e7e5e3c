"""What the parts keep at the clients: a row per client, created when the client is first drawn."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.core.tensors import PerPart, stack
from holdfast.method.method import Method
from holdfast.training.state_store import StateStore


class ClientStates:
    """States by client id.

    Attributes:
        stateful: The parts that keep a state at clients.
        rows: The states, in memory or on disk.
        changed: The clients whose state was written since the last checkpoint.
    """

    def __init__(self, method: Method, rows: StateStore | None = None) -> None:
        self.stateful = method.filling("init_client")
        self.rows: StateStore = {} if rows is None else rows
        self.changed: set[int] = set()

    def gather(self, ids: Iterable[int], w: Tensor) -> PerPart:
        """Return the states of some clients with a client axis; new clients start from the global model ``w``."""
        return stack([self.rows.get(i) or self.initial(w) for i in ids])

    def scatter(self, ids: list[int], states: PerPart) -> None:
        """Keep the new states of these clients."""
        if not self.stateful:
            return
        for row, i in enumerate(ids):
            self.rows[i] = tree_map(lambda t, r=row: t[r].clone(), states)
            self.changed.add(i)

    def initial(self, w: Tensor) -> PerPart:
        """Return the state of a client that is drawn for the first time."""
        return {p.name: p.init_client(w) for p in self.stateful}
