"""Dropout whose mask is a function of (seed, round, client, step), so that every engine drops the same units.

PyTorch's dropout draws from a generator: it fails under ``vmap``, and two engines would disagree. Here masks are hashed
from a key that ``dropping`` sets for the duration of a forward pass. Without a key (evaluation, teachers) nothing is
dropped.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from holdfast.core import rng

FUNCTIONAL = 1 << 20  # the layer number of masks that no ``Dropout`` module draws
SELU_FLOOR = -1.7580993408473766  # what SELU approaches: the value of a unit that alpha dropout drops

_active = threading.local()


@contextmanager
def dropping(key: Tensor | None) -> Iterator[None]:
    """Take the masks of all dropout within this block from ``key``; ``None`` switches dropout off."""
    before = [getattr(_active, name, start) for name, start in (("key", None), ("calls", 0), ("functional", 0))]
    _active.key, _active.calls, _active.functional = key, 0, 0
    try:
        yield
    finally:
        _active.key, _active.calls, _active.functional = before


class MasksDrawn(NamedTuple):
    """How many masks were drawn in a pass: by anything, and by other calls than those of ``Dropout`` modules."""

    all: int
    functional: int


def masks_drawn() -> MasksDrawn:
    """Count the masks that were drawn so far in this pass."""
    return MasksDrawn(_active.calls, _active.functional)


def draw(shape: tuple[int, ...], layer: int = FUNCTIONAL) -> Tensor | None:
    """Return uniform numbers that are new for every call within a pass, or None if nothing is to be dropped."""
    key = getattr(_active, "key", None)
    if key is None:
        return None
    _active.calls += 1
    _active.functional += layer == FUNCTIONAL
    if key.dim():  # of several clients, whose rows follow each other
        return rng.uniform(rng.key(key, layer, _active.calls), (shape[0] // len(key), *shape[1:])).flatten(0, 1)
    return rng.uniform(rng.key(key, layer, _active.calls), shape)


class Dropout(nn.Module):
    """Zero each unit with probability ``p`` and scale the others by ``1 / (1 - p)``, by the active key.

    A layer that runs several times in one forward pass draws a new mask every time.

    Attributes:
        p: The probability of dropping a unit.
        layer: Tells the layers of one network apart: give each its own number.
        channels: Whether to drop whole channels, the second axis, as ``nn.Dropout2d`` does.
    """

    def __init__(self, p: float = 0.5, layer: int = 0, channels: bool = False) -> None:
        super().__init__()
        self.p, self.layer, self.channels = p, layer, channels

    def forward(self, x: Tensor) -> Tensor:
        shape = x.shape[:2] if self.channels else x.shape
        number = None if self.p == 0.0 else draw(tuple(shape), self.layer)
        return x if number is None else _dropped(x, _spread(number, x) if self.channels else number, self.p)


def drop_units(x: Tensor, p: float, batch: int | None = None) -> Tensor:
    """Drop single numbers, as ``F.dropout`` does.

    Args:
        x: The activations.
        p: The probability of dropping a number.
        batch: The rows of the batch. If they are on the second axis, masks are drawn row by row all the same, so that
            padding at the end changes no other row.

    Returns:
        The activations that are left, scaled up.
    """
    number = _by_row(tuple(x.shape), batch)
    return x if number is None else _dropped(x, number, p)


def drop_channels(x: Tensor, p: float) -> Tensor:
    """Drop whole channels, the second axis, as ``F.dropout2d`` does."""
    number = draw(tuple(x.shape[:2]))
    return x if number is None else _dropped(x, _spread(number, x), p)


def drop_alpha(x: Tensor, p: float, channels: bool = False) -> Tensor:
    """Set units, or whole channels, to SELU's floor and restore mean and variance, as ``F.alpha_dropout`` does."""
    number = draw(tuple(x.shape[:2]) if channels else tuple(x.shape))
    if number is None:
        return x
    number = _spread(number, x) if channels else number
    scale = 1 / math.sqrt((1 - p) * (1 + p * SELU_FLOOR**2)) if p < 1 else 0.0
    kept = torch.where(number < p, torch.full_like(x, SELU_FLOOR), x)
    return scale * (kept - p * SELU_FLOOR)


def _dropped(x: Tensor, number: Tensor, p: float) -> Tensor:
    if p >= 1:
        return torch.zeros_like(x)
    return torch.where(number < p, torch.zeros_like(x), x / (1.0 - p))


def _spread(number: Tensor, x: Tensor) -> Tensor:
    return number.reshape(number.shape + (1,) * (x.dim() - 2))


def _by_row(shape: tuple[int, ...], batch: int | None) -> Tensor | None:
    if batch is None or len(shape) < 2 or shape[0] == batch or shape[1] != batch:
        return draw(shape)
    number = draw((shape[1], shape[0], *shape[2:]))
    return None if number is None else number.transpose(0, 1)
