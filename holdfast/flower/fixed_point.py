"""Numbers as whole numbers modulo 2^64, as secure aggregation sums them.

A number x travels as round(x * 2^32) modulo 2^64. Sums of these are exact and wrap around like the masks that are added
to them, so that the only error is that of rounding: half of 2^-32 for each node.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

FRACTION_BITS = 32
STEP = 2.0**-FRACTION_BITS
LARGEST = 2.0**20  # of a node's number; nothing is clipped to it, what is larger is left out
MOST_NODES = 2**10  # whose sum cannot leave the range of 64 bits

Ring = np.ndarray  # of uint64


def to_ring(values: Tensor) -> Ring:
    """Return numbers of at most ``LARGEST`` as whole numbers modulo 2^64."""
    return np.rint(values.detach().cpu().double().numpy() / STEP).astype(np.int64).view(np.uint64)


def from_ring(ring: Ring) -> Tensor:
    """Undo ``to_ring`` of a sum.

    >>> from_ring(to_ring(torch.tensor([0.5, -3.0])) + to_ring(torch.tensor([0.25, 1.0]))).tolist()
    [0.75, -2.0]
    """
    return torch.from_numpy(ring.view(np.int64) * STEP)


def in_range(values: Tensor, nodes: int = 1) -> bool:
    """Tell whether numbers, or their sums over some nodes, are finite and small enough."""
    return bool((values.abs() <= LARGEST * nodes).all())  # NaN compares as false
