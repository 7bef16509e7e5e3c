"""The contract of a split: how samples are dealt to clients.

A split is a sum of at most one term for each of three aspects: which labels a client holds, how many samples it has,
and how its features are changed. Derive from the class of the aspect that you want to set:

- ``LabelSplit`` sees no samples, only how many there are of each class. It returns a *table*, the number of samples of
  every client and class. The columns add up to the classes, so every sample is dealt exactly once. Which sample of a
  class goes to which of its clients is a shuffle, the same for all splits.
- ``OwnerSplit`` names the client of every sample. It therefore sets both labels and sizes.
- ``SizeSplit`` changes the client sizes of a label split.
- ``FeatureSplit`` adds noise to the features of each client.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.params import Named
from holdfast.data.deal import ClientNoise

if TYPE_CHECKING:
    from holdfast.data.split_sum import SplitSum


@dataclass(frozen=True)
class Split(Named):
    """One term of a split sum. Its fields are its parameters.

    Attributes:
        slot: The place of the term in a sum: ``labels``, ``sizes`` or ``features``.
    """

    slot: ClassVar[str] = ""

    @property
    def sets(self) -> tuple[str, ...]:
        """The slots that this term decides; no other term of the sum may decide them too."""
        return (self.slot,)

    @property
    def smallest_client(self) -> int:
        """The number of samples that this term guarantees to every client."""
        return 0

    def __add__(self, other: Split | SplitSum) -> SplitSum:
        from holdfast.data.split_sum import total

        return total(self) + other


@dataclass(frozen=True)
class LabelSplit(Split):
    """A split that decides how many samples of each class a client gets.

    ``plan`` is what the split intends, in fractions of samples and with any client sizes: a ``SizeSplit`` starts from
    it. ``table`` is what the split deals when no other term changes the sizes. With an equal ``rng``, both
    must make the same draws.

    Attributes:
        keeps_classes: Whether a client must never receive a class outside its plan.
    """

    slot = "labels"
    keeps_classes: ClassVar[bool] = False

    def plan(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        """Return the intended samples: float64 [clients, classes], columns summing to ``counts``."""
        raise NotImplementedError

    def table(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        """Return the dealt samples: int64 [clients, classes], columns summing to ``counts``."""
        raise NotImplementedError


@dataclass(frozen=True)
class OwnerSplit(Split):
    """A split that names the client of every sample.

    Attributes:
        by_groups: Whether every group of the data is a client, with the group's number and name.
    """

    slot = "labels"
    by_groups: ClassVar[bool] = False

    @property
    def sets(self) -> tuple[str, ...]:
        return ("labels", "sizes")

    def owners(self, groups: np.ndarray | None, samples: int, clients: int) -> np.ndarray:
        """Return the client of every sample, int64 [samples]; ``groups`` is the data set's own grouping, if any."""
        raise NotImplementedError


@dataclass(frozen=True)
class SizeSplit(Split):
    """A split that decides how many samples a client gets."""

    slot = "sizes"

    def reshape(self, plan: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the plan of a label split with other row sums, the client sizes; columns keep their sums."""
        raise NotImplementedError


@dataclass(frozen=True)
class FeatureSplit(Split):
    """A split that decides how the features of a client differ."""

    slot = "features"

    def draw(self, clients: int, seed: int) -> ClientNoise:
        """Return the noise of every client."""
        raise NotImplementedError


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Return the random numbers of one purpose, so that adding a term to a sum never changes what the others draw."""
    key = np.array([seed % 2**64, zlib.crc32(purpose.encode())], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def check_enough_samples(split: Split, samples: int, clients: int, purpose: str) -> None:
    """Raise an error when there are fewer samples than clients."""
    if samples < clients:
        raise HoldfastError(
            f"{split}: {samples} samples cannot give {clients} clients {purpose}; use at most {samples} clients"
        )
