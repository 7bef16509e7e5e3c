"""shards: the samples sorted by label and cut into pieces, a few for each client."""

from __future__ import annotations

from dataclasses import MISSING, dataclass

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.data.count_tables import apportion
from holdfast.data.deal import count_pairs
from holdfast.data.split import LabelSplit


@dataclass(frozen=True)
class Shards(LabelSplit):
    """``s`` shards per client (McMahan et al. 2017): sort by label, cut into ``N*s`` equal shards, deal them.

    FedAgg Sec. V-A: 60000 samples, 100 clients and ``s = 2`` make 200 shards of 300. Where ``N*s`` does not divide the
    samples, shards differ by one sample, and the longer ones are spread evenly over the labels. FedNLR's shards of
    unequal sizes are ``shards(s) + quantity(a)``.
    """

    name = "shards"
    keeps_classes = True
    s: int = param(MISSING, "shards per client", low=1)

    def plan(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        return self.table(counts, clients, rng).astype(np.float64)

    def table(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        n, pieces = int(counts.sum()), clients * self.s
        if pieces > n:
            raise HoldfastError(
                f"{self}: {clients} clients need {pieces} shards, but there are only {n} samples; "
                f"use fewer shards, or at most {n // self.s} client{'s' * (n // self.s != 1)}"
            )
        holder = rng.permutation(np.repeat(np.arange(clients), self.s))
        owner = np.repeat(holder, apportion(np.ones(pieces), n, 0.0))
        return count_pairs(owner, np.repeat(np.arange(len(counts)), counts), clients, len(counts))
