"""Feature noise: a fixed function of the seed and the sample's number."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.core import rng

Level = float | Tensor


def perturb(x: Tensor, sample: Tensor, sigma: Level, mean: Level, mask_share: float, seed: int) -> Tensor:
    """Add a client's noise to its samples, FNR-FL Eq. 2: ``x' = x + (eps * M(x)) * sigma + mu``, eps ~ N(0, 1).

    A sample's noise is the same on every engine and in every round.

    Args:
        x: Samples, [B, ...] or [C, B, ...].
        sample: The number of every sample of ``x``, [B] or [C, B].
        sigma: The standard deviation: a number, or a tensor over the first axes of ``x``, [C] or [C, B].
        mean: The mean of the noise, likewise.
        mask_share: The probability with which each number of a sample is in the mask M.
        seed: The seed of the noise.

    Returns:
        The samples as their client sees them.
    """
    inner = tuple(x.shape[sample.dim() :])
    key = rng.key(seed, rng.NOISE, sample)
    noise = rng.normal(rng.key(key, 1), inner, x.dtype)
    if mask_share < 1:
        noise = torch.where(rng.uniform(rng.key(key, 2), inner, x.dtype) < mask_share, noise, 0.0)
    return x + noise * _over(sigma, x) + _over(mean, x)


def _over(level: Level, x: Tensor) -> Level:
    """Reshape a level so that it broadcasts over ``x`` from the first axis."""
    if not isinstance(level, Tensor):
        return level
    return level.to(x.device, x.dtype).reshape(level.shape + (1,) * (x.dim() - level.dim()))
