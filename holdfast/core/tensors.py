"""Dictionaries of tensors: what parts keep, send and upload, one dictionary per part."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Tensors = dict[str, Tensor]
PerPart = dict[str, Tensors]  # part name -> its tensors


def double(t: Tensor) -> Tensor:
    """Return a tensor in float64; on the CPU if its device has none."""
    return (t.cpu() if t.device.type == "mps" else t).double()


def flatten(tree: PerPart) -> Tensors:
    """Join part and tensor names into one level: ``part/name``.

    >>> sorted(flatten({"scaffold": {"c": torch.zeros(1)}, "moon": {}}))
    ['scaffold/c']
    """
    return {f"{part}/{name}": t for part, tensors in tree.items() for name, t in tensors.items()}


def unflatten(flat: Tensors) -> PerPart:
    """Undo ``flatten``."""
    tree: PerPart = {}
    for key, t in flat.items():
        part, name = key.split("/", 1)
        tree.setdefault(part, {})[name] = t
    return tree


def stack(rows: Sequence[PerPart]) -> PerPart:
    """Give the states of several clients a leading client axis."""
    first = rows[0] if rows else {}
    return {part: {k: torch.stack([r[part][k] for r in rows]) for k in first[part]} for part in first}


def concatenate(slices: Sequence[PerPart]) -> PerPart:
    """Join dictionaries along the client axis that they already have."""
    first = slices[0]
    return {part: {k: torch.cat([s[part][k] for s in slices]) for k in first[part]} for part in first}


def nbytes(tree: PerPart) -> int:
    """Count the bytes of all tensors."""
    return sum(t.numel() * t.element_size() for tensors in tree.values() for t in tensors.values())


def finite_rows(tree: PerPart, rows: Tensor) -> Tensor:
    """Tell which clients are finite in ``rows`` [C, P] and in every tensor of ``tree``: bool [C]."""
    good = _finite(rows)
    for tensors in tree.values():
        for t in tensors.values():
            good = good & _finite(t.reshape(len(t), -1))
    return good


def _finite(rows: Tensor) -> Tensor:
    """A NaN or an infinity shows in the extremes of a row; two passes are many times faster than ``aminmax``."""
    if not rows.is_floating_point() or rows.shape[1] == 0:
        return torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    return torch.isfinite(rows.amin(1)) & torch.isfinite(rows.amax(1))
