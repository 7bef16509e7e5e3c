"""The state of a run after a round, held still in host memory, to be written while the next rounds are trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from holdfast.core.tensors import PerPart, Tensors, flatten
from holdfast.training.client_states import ClientStates
from holdfast.training.server import Server

MODEL = "model"


class Snapshot(NamedTuple):
    """What a checkpoint of a round holds.

    Attributes:
        round: The round.
        server: The global model and what the parts keep at the server, by name.
        clients: What the parts keep at the clients that changed since the last snapshot.
    """

    round: int
    server: Tensors
    clients: Mapping[int, PerPart]


def take(round: int, server: Server, clients: ClientStates) -> Snapshot:
    """Copy what the coming rounds may overwrite; the changes of the clients count as taken.

    Args:
        round: The round that has ended.
        server: The server of the run.
        clients: The client states of the run.

    Returns:
        The snapshot. Nothing in it changes any more.
    """
    state = {name: in_host_memory(t) for name, t in ({MODEL: server.w} | flatten(server.states)).items()}
    return Snapshot(round, state, clients.take_changed())


def in_host_memory(t: Tensor) -> Tensor:
    """Return a copy of a tensor in host memory."""
    return t.detach().to("cpu", copy=True)
