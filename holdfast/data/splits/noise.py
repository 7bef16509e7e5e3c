"""noise: every client sees the samples through its own noisy sensor."""

from __future__ import annotations

from dataclasses import MISSING, dataclass

import numpy as np

from holdfast.core.params import param
from holdfast.data.deal import ClientNoise
from holdfast.data.split import FeatureSplit, stream


@dataclass(frozen=True)
class FeatureNoise(FeatureSplit):
    """Gaussian noise on the features (FNR-FL Eq. 2): ``x' = x + (eps * M(x)) * sigma_i + mu``, eps ~ N(0, 1).

    ``spread`` decides the ``sigma_i`` of client i = 1..N: ``fixed``: sigma; ``ramp``: ``sigma * i/N``, as printed by
    Li et al. 2022; ``ramp-from-clean``: ``sigma * (i-1)/(N-1)``, as in their code, where the first client's data is
    clean; ``drawn``: uniform in [0, sigma]. The paper leaves its mask M open: here it contains each number of a sample
    with probability ``mask``. Noise belongs to the sample: it is the same in every round. Alone, the split is iid.
    """

    name = "noise"
    sigma: float = param(MISSING, "standard deviation of the noise (the largest, when spread)", low=0)
    spread: str = param("fixed", "how sigma varies over clients", choices=("fixed", "ramp", "ramp-from-clean", "drawn"))
    mask: float = param(1.0, "share of a sample's numbers that get noise", low=0, high=1)
    mean: float = param(0.0, "mean of the noise, added to all numbers")

    def draw(self, clients: int, seed: int) -> ClientNoise:
        if self.spread == "ramp":
            share = np.arange(1, clients + 1) / clients
        elif self.spread == "ramp-from-clean":
            share = np.arange(clients) / max(clients - 1, 1)
        elif self.spread == "drawn":
            share = stream(seed, self.name).random(clients)
        else:
            share = np.ones(clients)
        return ClientNoise((self.sigma * share).astype(np.float32), self.mean, self.mask, seed)
