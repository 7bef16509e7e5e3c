"""Gaussian noise: from a key, which repeats, or from the operating system, which nobody can repeat."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from holdfast.core import rng

Noise = Callable[[Tensor], Tensor]  # a tensor -> standard normal numbers in its shape


def keyed(key: Callable[[], Tensor]) -> Noise:
    """Return noise that follows from a key: every engine and every repetition of a run gets the same.

    Keys have 32 bits, so that whoever knows the result can try all of them: such noise hides nothing from an attacker.
    """

    def noise(like: Tensor) -> Tensor:
        return rng.gaussian(rng.key(key(), rng.PRIVACY), tuple(like.shape)).to(like.dtype)

    return noise


def from_system(like: Tensor) -> Tensor:
    """Return noise from the operating system's random bytes, for runs in which it must hide something."""
    words = np.frombuffer(os.urandom(16 * like.numel()), np.uint64).reshape(2, -1)
    a, b = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    normal = np.sqrt(-2.0 * np.log1p(-a)) * np.cos(2.0 * np.pi * b)
    return torch.from_numpy(normal.reshape(tuple(like.shape))).to(like.device, like.dtype)
