"""iid: the samples are shuffled and dealt in equal numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.data.count_tables import apportion
from holdfast.data.deal import count_pairs
from holdfast.data.split import LabelSplit


@dataclass(frozen=True)
class Iid(LabelSplit):
    """Every client gets a random ``n/N`` samples (sizes differ by at most one), as in McMahan et al. 2017.

    With more clients than samples, some clients are empty.
    """

    name = "iid"

    def plan(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        return np.tile(counts / clients, (clients, 1))

    def table(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        n = int(counts.sum())
        sizes = rng.permutation(apportion(np.ones(clients), n, 0.0))
        owner = rng.permutation(np.repeat(np.arange(clients), sizes))
        return count_pairs(owner, np.repeat(np.arange(len(counts)), counts), clients, len(counts))
