"""Who takes part in a round: a function of (seed, round)."""

from __future__ import annotations

import numpy as np

from holdfast import keys
from holdfast.config import Config


def draw(config: Config, occupied: np.ndarray, round: int) -> np.ndarray:
    """The cohort of a round, sorted by client id. Clients without samples are never drawn."""
    rng = np.random.default_rng([config.seed, keys.COHORT, round])
    if config.participation is None:
        size = min(config.cohort_size, len(occupied))
        return np.sort(rng.choice(occupied, size, replace=False))
    drawn = occupied[rng.random(len(occupied)) < config.participation]
    return drawn if len(drawn) else rng.choice(occupied, 1)
