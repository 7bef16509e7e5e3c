"""Shared by parts that treat everything a client sends as one vector."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.tensors import PerPart, flatten, unflatten


def as_vector(delta: Tensor, uploads: PerPart) -> Tensor:
    """Join a delta and uploads to one vector, or those of a cohort, whose axis comes first, to a row per client."""
    lead, rows = delta.dim() - 1, [delta]
    for name, t in named(uploads):
        if not t.is_floating_point():
            raise HoldfastError(f"{name} is sent as whole numbers, which cannot be clipped: send it as real numbers")
        rows.append(t.reshape((*delta.shape[:-1], t.shape[lead:].numel())).to(delta.dtype))
    return torch.cat(rows, dim=-1)


def from_vector(vector: Tensor, delta: Tensor, uploads: PerPart) -> tuple[Tensor, PerPart]:
    """Undo ``as_vector``.

    Args:
        vector: The vector, or rows of them.
        delta: A delta with the length of the one in the vector.
        uploads: Uploads with the names, types and shapes of those in the vector; a leading axis may differ in length.

    Returns:
        The delta and the uploads.
    """
    lead, found = delta.dim() - 1, {}
    start = delta.shape[-1]
    for name, t in named(uploads):
        shape = t.shape[lead:]
        found[name] = vector[..., start : start + shape.numel()].reshape((*vector.shape[:-1], *shape)).to(t.dtype)
        start += shape.numel()
    return vector[..., : delta.shape[-1]], unflatten(found)


def named(uploads: PerPart) -> list[tuple[str, Tensor]]:
    """Return the tensors of uploads by name, in an order that does not depend on who joined them."""
    return sorted(flatten(uploads).items())
