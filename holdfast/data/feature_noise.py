"""Feature noise: a fixed function of the seed and the sample's number."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.core import rng

Level = float | Tensor


def perturb(x: Tensor, sample: Tensor, sigma: Level, mean: Level, mask_share: float, seed: int) -> Tensor:
    """Samples as their client sees them, FNR-FL Eq. 2: ``x' = x + (eps * M(x)) * sigma + mu``, eps ~ N(0, 1).

    ``sample`` holds the number of every sample of ``x`` and has its leading shape, [B] or [C, B]. ``sigma``
    and ``mean`` are numbers, or tensors over its first axes: [C] or [C, B] for x [C, B, ...]. Each number of
    a sample is in the mask M with probability ``mask_share``. A sample's noise is the same on every engine
    and in every round.
    """
    inner = tuple(x.shape[sample.dim() :])
    key = rng.key(seed, rng.NOISE, sample)
    noise = rng.normal(rng.key(key, 1), inner, x.dtype)
    if mask_share < 1:
        noise = torch.where(rng.uniform(rng.key(key, 2), inner, x.dtype) < mask_share, noise, 0.0)
    return x + noise * _over(sigma, x) + _over(mean, x)


def _over(level: Level, x: Tensor) -> Level:
    """A level that broadcasts over ``x`` from its first axis on."""
    if not isinstance(level, Tensor):
        return level
    return level.to(x.device, x.dtype).reshape(level.shape + (1,) * (x.dim() - level.dim()))
