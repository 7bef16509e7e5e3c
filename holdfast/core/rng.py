"""Random numbers without generators: every random number is a hash of what it is for.

A key is made from the seed and from integers that say what is drawn (round, client, epoch, ...). Batch order, dropout
masks and noise depend on their key alone, so that every engine, every device and every resumed run sees the same
numbers. Keys are 32-bit values in int64 tensors; they broadcast, and they work inside ``vmap``.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

Word = int | Tensor
MASK = 0xFFFFFFFF
START = 0x9E3779B9
STRIDE = 0x9E3779B1 - (1 << 32)  # odd, modulo 2^32; negative, since compilers want constants that fit 32 bits

# What a key is for: the first word after the seed, so that no two uses share numbers.
COHORT, ORDER, DROPOUT, NOISE, AUGMENT, PART, SERVER, EPOCHS, ATTACK, PRIVACY, SPEED = range(1, 12)

LENT = threading.RLock()  # held by the thread that uses PyTorch's own generators, of which a process has one set


@contextmanager
def lent_generators(seed: int | None = None, device: torch.device | None = None) -> Iterator[None]:
    """Lend PyTorch's own generators to this thread for the duration of a block, and restore them afterwards.

    Args:
        seed: The seed to begin with; by default they continue.
        device: The device whose generator is meant, beside that of the CPU.
    """
    with LENT, torch.random.fork_rng([device] if device is not None and device.type == "cuda" else []):
        if seed is not None:
            torch.manual_seed(seed)
        yield


def mix(x: Any) -> Any:
    """Mix the bits of 32-bit words: a bijection with good avalanche (two rounds of multiply and xor-shift)."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & MASK
    x = ((x ^ (x >> 15)) * 0x846CA68B) & MASK
    return x ^ (x >> 16)


def key(*words: Word) -> Tensor:
    """Fold words into one key; tensors broadcast.

    Python numbers are folded as such, so that a key of numbers and device tensors never leaves the device.

    >>> key(0, 1).item() == key(0, 1).item() != key(1, 0).item()
    True
    """
    state: Word = START
    for word in words:
        low = word.to(torch.int64) & MASK if isinstance(word, Tensor) else word & MASK
        before = state * 0x85EBCA6B + 0x165667B1
        state = mix(((before & MASK if isinstance(before, int) else before) + low) & MASK)
    return state if isinstance(state, Tensor) else torch.tensor(state, dtype=torch.int64)


def numbers(*words: int | np.ndarray) -> np.ndarray:
    """Return the same keys in NumPy.

    >>> int(numbers(0, 1, np.array([5]))[0]) == int(key(0, 1, 5))
    True
    """
    state: int | np.ndarray = START
    for word in words:
        state = mix(((state * 0x85EBCA6B & MASK) + (word & MASK) + 0x165667B1) & MASK)
    return np.asarray(state)


def uniform(k: Tensor, shape: tuple[int, ...] = (), dtype: torch.dtype = torch.float32) -> Tensor:
    """Return numbers in [0, 1), ``shape`` of them per key: the result has shape ``k.shape + shape``."""
    count = math.prod(shape)
    index = torch.arange(count, device=k.device).reshape(shape)
    k = k.reshape(k.shape + (1,) * len(shape))
    stride = (k & 0) + STRIDE  # as a tensor: compilers multiply a constant with strides of their own, beyond 32 bits
    words = torch.as_tensor(mix((k + index * stride) & MASK))
    # 24 bits are what a float32 holds exactly: the same numbers in every precision.
    return (words >> 8).to(dtype) * (1.0 / (1 << 24))


def normal(k: Tensor, shape: tuple[int, ...] = (), dtype: torch.dtype = torch.float32) -> Tensor:
    """Return standard normal numbers (Box-Muller), ``shape`` of them per key."""
    a = uniform(key(k, 1), shape, dtype)
    b = uniform(key(k, 2), shape, dtype)
    return torch.sqrt(-2.0 * torch.log1p(-a)) * torch.cos(2.0 * math.pi * b)


def gaussian(k: Tensor, shape: tuple[int, ...] = ()) -> Tensor:
    """Return standard normal numbers in float64, from 53 random bits each, so that their tails are not cut short."""
    count = math.prod(shape)
    index = torch.arange(count, device=k.device).reshape(shape)
    stride = (k & 0) + STRIDE

    def bits(word: int) -> Tensor:
        return torch.as_tensor(mix((key(k, word) + index * stride) & MASK))

    def unit(first: int) -> Tensor:
        return ((bits(first) >> 5) * (1 << 26) + (bits(first + 1) >> 6)).to(torch.float64) * 2.0**-53

    return torch.sqrt(-2.0 * torch.log1p(-unit(1))) * torch.cos(2.0 * math.pi * unit(3))
