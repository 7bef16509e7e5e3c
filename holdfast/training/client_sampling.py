"""Who takes part in a round: a function of (seed, round)."""

from __future__ import annotations

import numpy as np

from holdfast.core import rng
from holdfast.method.config import Config


def draw(config: Config, occupied: np.ndarray, round: int) -> np.ndarray:
    """The cohort of a round, sorted by client id. Clients without samples are never drawn."""
    generator = np.random.default_rng([config.seed, rng.COHORT, round])
    if config.participation is None:
        size = min(config.cohort_size, len(occupied))
        return np.sort(generator.choice(occupied, size, replace=False))
    drawn = occupied[generator.random(len(occupied)) < config.participation]
    return drawn if len(drawn) else generator.choice(occupied, 1)
