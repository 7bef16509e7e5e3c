"""The result of a split: which samples each client owns, and the noise on its features."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class ClientNoise:
    """The feature noise of every client, as ``holdfast.data.feature_noise.perturb`` needs it.

    Attributes:
        sigma: The standard deviation at every client: float32 [N].
        mean: The mean of the noise.
        share: The share of a sample's numbers that get noise.
        seed: The seed of the noise.
    """

    sigma: np.ndarray
    mean: float
    share: float
    seed: int


@dataclass(frozen=True, eq=False)
class Deal:
    """Samples dealt to N clients.

    Attributes:
        index: Sample numbers, client after client: int64 [n].
        offsets: Client ``i`` owns ``index[offsets[i]:offsets[i + 1]]``, in ascending order: int64 [N + 1].
        noise: The feature noise of every client, if any.
    """

    index: np.ndarray
    offsets: np.ndarray
    noise: ClientNoise | None = None

    @property
    def clients(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> np.ndarray:
        """The number of samples of every client: int64 [N]."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> np.ndarray:
        """The client of every entry of ``index``: int64 [n]."""
        return np.repeat(np.arange(self.clients), self.sizes)

    def client(self, i: int) -> np.ndarray:
        """Return the sample numbers of one client."""
        return self.index[self.offsets[i] : self.offsets[i + 1]]

    def sizes_of(self, clients: np.ndarray) -> np.ndarray:
        """Return the number of samples of some clients."""
        return np.asarray(self.offsets[clients + 1] - self.offsets[clients])

    def only(self, clients: Iterable[int]) -> Deal:
        """Return the same deal in which all other clients have no samples."""
        kept = np.isin(np.arange(self.clients), list(clients))
        return Deal(self.index[kept[self.owners]], np.cumsum([0, *(self.sizes * kept)]), self.noise)

    def placed(self, start: int) -> Deal:
        """Return the same deal of samples that are numbered from ``start`` in the order of ``index``."""
        return Deal(np.arange(start, start + len(self.index)), self.offsets, self.noise)

    def counts(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """Count the samples of every client and class: int64 [N, classes]."""
        dealt = np.asarray(labels)[self.index].astype(np.int64, copy=False)
        return count_pairs(self.owners, dealt, self.clients, classes)


@dataclass(frozen=True, eq=False)
class CohortDeal:
    """The samples of some clients, one client after the other, where no others are in memory.

    Attributes:
        ids: The clients, ascending: int64 [C].
        offsets: The client ``ids[r]`` owns the samples ``offsets[r]`` to ``offsets[r + 1]``: int64 [C + 1].
    """

    ids: np.ndarray
    offsets: np.ndarray
    noise: None = None

    def client(self, i: int) -> np.ndarray:
        """Return the sample numbers of one client."""
        (row,) = self._rows(np.array([i]))
        return np.arange(self.offsets[row], self.offsets[row + 1])

    def sizes_of(self, clients: np.ndarray) -> np.ndarray:
        """Return the number of samples of some clients."""
        return np.asarray(np.diff(self.offsets)[self._rows(clients)])

    def _rows(self, clients: np.ndarray) -> np.ndarray:
        rows = np.searchsorted(self.ids, clients)
        if not np.array_equal(self.ids[np.minimum(rows, len(self.ids) - 1)], clients):
            raise KeyError(f"of the clients {clients.tolist()} not all are in memory")
        return rows


def count_pairs(owner: np.ndarray, label: np.ndarray, clients: int, classes: int) -> np.ndarray:
    """Count how often each pair (client, class) occurs: int64 [clients, classes]."""
    cells = np.bincount(owner * classes + label, minlength=clients * classes)
    return cells.reshape(clients, classes).astype(np.int64, copy=False)


def group_by_owner(owner: np.ndarray, clients: int, noise: ClientNoise | None = None) -> Deal:
    """Return the deal in which sample ``k`` belongs to client ``owner[k]``.

    >>> [group_by_owner(np.array([1, 0, 1]), clients=3).client(i).tolist() for i in range(3)]
    [[1], [0, 2], []]
    """
    offsets = np.zeros(clients + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=clients), out=offsets[1:])
    return Deal(np.argsort(owner, kind="stable").astype(np.int64, copy=False), offsets, noise)
