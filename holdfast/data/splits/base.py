"""The contract of a split.

A split sees no samples, only how many there are of each class. It answers with a *table*, the number of
samples of every client and class, whose columns add up to the classes: so every sample is dealt exactly once.
Which sample of a class goes to which of its clients is a shuffle, the same for all splits.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.params import Named

if TYPE_CHECKING:
    from holdfast.data.splits.sums import Sum


@dataclass(frozen=True)
class Split(Named):
    """One term of a split sum. Its parameters are its fields."""

    def __add__(self, other: Split | Sum) -> Sum:
        from holdfast.data.splits.sums import total

        return total(self) + other


@dataclass(frozen=True)
class Dealer(Split):
    """A split that says how labels fall on clients; a sum has at most one.

    ``plan`` is what the split intends, in fractions of samples and with any row sums: the table that
    ``quantity`` reshapes. ``table`` is what it deals when nothing reshapes it.
    """

    keeps_classes: ClassVar[bool] = False  # clients may never receive a class outside their plan

    def plan(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        """Intended samples: float64 [clients, classes], columns summing to ``counts``."""
        raise NotImplementedError

    def table(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        """Dealt samples: int64 [clients, classes], columns summing to ``counts``."""
        raise NotImplementedError


def stream(seed: int, purpose: str) -> np.random.Generator:
    """The random numbers of one purpose: adding a term to a sum never changes what the others draw."""
    key = np.array([seed % 2**64, zlib.crc32(purpose.encode())], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def need(samples: int, clients: int, split: Split, why: str) -> None:
    """Refuse fewer samples than ``split`` needs."""
    if samples < clients:
        raise HoldfastError(
            f"{split}: {samples} samples cannot give {clients} clients {why}; use at most {samples} clients"
        )
