"""What a split gives: which samples each client owns, and the noise on their features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class ClientNoise:
    """Feature noise of every client: what ``holdfast.data.feature_noise.perturb`` needs."""

    sigma: np.ndarray  # [N] float32
    mean: float
    share: float  # of the numbers of a sample that get noise
    seed: int


@dataclass(frozen=True, eq=False)
class Deal:
    """Samples dealt to N clients; client ``i`` owns ``index[offsets[i]:offsets[i + 1]]``, ascending."""

    index: np.ndarray  # [n] int64: sample numbers, client after client
    offsets: np.ndarray  # [N + 1] int64
    noise: ClientNoise | None = None

    @property
    def clients(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> np.ndarray:
        """Samples of every client: int64 [N]."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> np.ndarray:
        """The client of every entry of ``index``: int64 [n]."""
        return np.repeat(np.arange(self.clients), self.sizes)

    def client(self, i: int) -> np.ndarray:
        """The samples of one client."""
        return self.index[self.offsets[i] : self.offsets[i + 1]]

    def counts(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """Samples of every client and class: int64 [N, classes]."""
        own = np.asarray(labels)[self.index].astype(np.int64, copy=False)
        return tally(self.owners, own, self.clients, classes)


def tally(owner: np.ndarray, label: np.ndarray, clients: int, classes: int) -> np.ndarray:
    """How often each pair (client, class) occurs: int64 [clients, classes]."""
    cells = np.bincount(owner * classes + label, minlength=clients * classes)
    return cells.reshape(clients, classes).astype(np.int64, copy=False)


def gather(owner: np.ndarray, clients: int, noise: ClientNoise | None = None) -> Deal:
    """The deal in which sample ``k`` belongs to client ``owner[k]``.

    >>> [gather(np.array([1, 0, 1]), clients=3).client(i).tolist() for i in range(3)]
    [[1], [0, 2], []]
    """
    offsets = np.zeros(clients + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=clients), out=offsets[1:])
    return Deal(np.argsort(owner, kind="stable").astype(np.int64, copy=False), offsets, noise)
