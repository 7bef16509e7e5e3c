"""Samples of several tensors, such as tokens with their mask, stored as the columns of one table.

Everything that deals, stores or sends samples then sees one tensor; the network gets them apart again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError


class InputField(NamedTuple):
    """One of the tensors of a sample.

    Attributes:
        name: The argument of the model's ``forward``; empty if arguments are passed in order.
        shape: The shape for one sample.
        integer: Whether the numbers are integers, such as tokens.
    """

    name: str
    shape: tuple[int, ...]
    integer: bool


def is_several(x: Any) -> bool:
    """Tell whether inputs are several arrays: a mapping by name, or a tuple of arrays."""
    return isinstance(x, Mapping) or (isinstance(x, tuple) and all(hasattr(a, "shape") for a in x) and bool(x))


def pack(what: str, tensors: Mapping[str, Tensor] | Sequence[Tensor]) -> tuple[Tensor, tuple[InputField, ...]]:
    """Store several inputs as one table.

    Args:
        what: The name of the inputs, for error messages.
        tensors: The inputs, by name or in order, each with a sample axis.

    Returns:
        The table [n, columns], and what its columns are. Integers and real numbers together are stored in double
        precision, which holds both exactly.
    """
    named = tensors if isinstance(tensors, Mapping) else dict.fromkeys(range(len(tensors)))
    parts = list(tensors.values()) if isinstance(tensors, Mapping) else list(tensors)
    lengths = {len(t) for t in parts}
    if len(lengths) != 1:
        found = ", ".join(str(len(t)) for t in parts)
        raise HoldfastError(f"the inputs in {what} have {found} samples; give all the same number")
    integers = [not t.is_floating_point() for t in parts]
    kind = torch.int64 if all(integers) else torch.float64 if any(integers) else torch.float32
    fields = tuple(
        InputField(name if isinstance(name, str) else "", tuple(t.shape[1:]), whole)
        for name, t, whole in zip(named, parts, integers, strict=True)
    )
    return torch.cat([t.reshape(len(t), -1).to(kind) for t in parts], 1), fields


def unpack(stored: Tensor, fields: Sequence[InputField], dtype: torch.dtype) -> dict[str, Tensor] | tuple[Tensor, ...]:
    """Undo ``pack``.

    Args:
        stored: The table, with any leading axes.
        fields: What its columns are.
        dtype: The type of real numbers.

    Returns:
        The inputs, by name or in order.
    """
    sizes = [torch.Size(field.shape).numel() for field in fields]
    pieces = [
        piece.reshape(*stored.shape[:-1], *field.shape).to(torch.int64 if field.integer else dtype)
        for piece, field in zip(torch.split(stored, sizes, -1), fields, strict=True)
    ]
    if fields[0].name:
        return {field.name: piece for field, piece in zip(fields, pieces, strict=True)}
    return tuple(pieces)
