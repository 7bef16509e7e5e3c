"""What the parts keep at the clients: a row per client, created when the client is first drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.core.tensors import PerPart, stack
from holdfast.method.method import Method
from holdfast.models.batchnorm import STATISTICS
from holdfast.models.net import Net
from holdfast.training.state_store import StateStore, frozen_states


class ClientStates:
    """States by client id.

    Args:
        method: The method, whose parts may keep a state at clients.
        net: The network, whose BatchNorm layers may stay at clients.
        rows: Keeps the states, in memory or on disk; by default in memory.

    Attributes:
        stateful: Whether clients keep anything.
        rows: The states, in memory or on disk.
        changed: The clients whose state was written since the last snapshot for a checkpoint.
    """

    def __init__(self, method: Method, net: Net, rows: StateStore | None = None) -> None:
        self.parts = method.filling("init_client")
        self.own = net.kept_at_clients()
        self.stateful = bool(self.parts or self.own)
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

    def take_changed(self) -> Mapping[int, PerPart]:
        """Return the states that changed since the last call, as they are now; later rounds do not change these."""
        taken = frozen_states(self.rows, sorted(self.changed))
        self.changed.clear()
        return taken

    def initial(self, w: Tensor) -> PerPart:
        """Return the state of a client that is drawn for the first time."""
        return {p.name: p.init_client(w) for p in self.parts} | ({STATISTICS: self.own} if self.own else {})
