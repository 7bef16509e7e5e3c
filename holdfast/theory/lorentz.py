"""FedMRUR's distance in the Lorentz model: as printed, in 60 digits, and as the library computes it."""

from __future__ import annotations

import decimal
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.parts.hyperbolic import lorentz_distance


def printed_distance(z: Tensor, zg: Tensor, beta: float = 1.0) -> Tensor:
    """Return the distance of Eqs. 3 and 4 as printed: -2 beta - 2 <L(z), L(zg)>.

    Args:
        z: The features of the local model.
        zg: The features of the global model.
        beta: The constant of the Lorentz model.

    Returns:
        The distance of every pair.
    """
    a, b = (torch.sqrt(beta + (v * v).sum(-1)) for v in (z, zg))
    return -2 * beta - 2 * (-a * b + (z * zg).sum(-1))


def true_distance(z: Tensor, zg: Tensor, beta: float = 1.0) -> float:
    """Return the distance of one pair, in 60 digits; the arguments are those of ``printed_distance``."""
    with decimal.localcontext() as context:
        context.prec = 60
        p, q = ([decimal.Decimal(float(x)) for x in v] for v in (z, zg))
        b = decimal.Decimal(beta)
        first, second = ((b + sum(x * x for x in v)).sqrt() for v in (p, q))
        return float(-2 * b + 2 * first * second - 2 * sum(x * y for x, y in zip(p, q, strict=True)))


def features(length: float, gap: float, pairs: int = 100, size: int = 64, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return pairs in float32: half apart in a random direction, half along the first vector.

    Args:
        length: The length of the first vector of each pair.
        gap: The distance of the second one.
        pairs: How many.
        size: Their dimension.
        seed: The seed.

    Returns:
        The first and the second vectors.
    """
    rng = torch.Generator().manual_seed(seed)
    z, step = torch.randn(2, pairs, size, generator=rng)
    step[::2] = z[::2]
    z, step = (v / torch.linalg.vector_norm(v, dim=1, keepdim=True) for v in (z, step))
    return length * z, length * z + gap * step


class LorentzDistances(NamedTuple):
    """Distances of close pairs, computed three times: in 60 digits, as printed in float32, and by the library."""

    true: Tensor
    printed: Tensor
    ours: Tensor


@cache
def distances(length: float, gap: float = 7e-4) -> LorentzDistances:
    """Return the distances of pairs with this length and gap."""
    z, zg = features(length, gap)
    true = torch.tensor([true_distance(a, b) for a, b in zip(z, zg, strict=True)], dtype=torch.float64)
    return LorentzDistances(true, printed_distance(z, zg).double(), lorentz_distance(z.double(), zg.double(), 1.0))
