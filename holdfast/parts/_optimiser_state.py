"""Shared by local optimisers: their state, which is new in every round or stays at the client.

Beside vectors of the model's length, an optimiser has one counter: a number, or a vector if rates are rescaled, since a
frozen coordinate does not count. A client keeps it as a vector in both cases.
"""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.method.part import Client, Tensors


def empty(w: Tensor, vectors: tuple[str, ...], counter: str) -> Tensors:
    """Return the state that a client keeps before its first step.

    Args:
        w: The model.
        vectors: The names of the vectors.
        counter: The name of the counter.

    Returns:
        Zeros.
    """
    return {name: torch.zeros_like(w) for name in (*vectors, counter)}


def opened(c: Client, vectors: tuple[str, ...], counter: str) -> Tensors:
    """Return the scratch at the start of local training: what the client has kept, otherwise zeros.

    Args:
        c: The client.
        vectors: The names of the vectors.
        counter: The name of the counter.

    Returns:
        The vectors and the counter.
    """
    if not c.state:
        return {name: c.zeros() for name in vectors} | {counter: c.zeros_eta()}
    count = c.state[counter]
    return {name: c.state[name] for name in vectors} | {counter: count if c.rated else count[0]}


def closed(c: Client) -> Tensors:
    """Return what the client keeps of the scratch."""
    return {name: t.expand_as(c.w0) for name, t in c.local.items()}
