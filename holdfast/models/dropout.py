"""Dropout whose mask is a function of (seed, round, client, step), so that every engine drops the same units.

``nn.Dropout`` draws from a generator: it fails under ``vmap``, and two engines would disagree. This module hashes a key
that ``dropping`` sets for the duration of a forward pass. Without a key (evaluation, teachers) it does nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from holdfast.core import rng

_active = threading.local()


@contextmanager
def dropping(key: Tensor | None) -> Iterator[None]:
    """Let every ``Dropout`` take its mask from ``key`` within this block; ``None`` switches dropout off."""
    before = getattr(_active, "key", None), getattr(_active, "calls", 0)
    _active.key, _active.calls = key, 0
    try:
        yield
    finally:
        _active.key, _active.calls = before


class Dropout(nn.Module):
    """Zero each unit with probability ``p`` and scale the others by ``1 / (1 - p)``, by the active key.

    A layer that runs several times in one forward pass draws a new mask every time.

    Attributes:
        p: The probability of dropping a unit.
        layer: Tells the layers of one network apart: give each its own number.
    """

    def __init__(self, p: float = 0.5, layer: int = 0) -> None:
        super().__init__()
        self.p, self.layer = p, layer

    def forward(self, x: Tensor) -> Tensor:
        key = getattr(_active, "key", None)
        if key is None or self.p == 0.0:
            return x
        _active.calls += 1
        draw = rng.uniform(rng.key(key, self.layer, _active.calls), tuple(x.shape))
        return torch.where(draw < self.p, torch.zeros_like(x), x / (1.0 - self.p))
