"""Which clients take part in a round: a function of the seed and the round."""

from __future__ import annotations

import numpy as np

from holdfast.core import rng
from holdfast.method.config import Config


def draw(config: Config, occupied: np.ndarray, round: int) -> np.ndarray:
    """Draw the cohort of a round.

    Args:
        config: The run; it fixes the size of the cohort or the probability of taking part.
        occupied: The clients that have samples; no others are drawn.
        round: The number of the round, from 1.

    Returns:
        The client ids, ascending.
    """
    generator = np.random.default_rng([config.seed, rng.COHORT, round])
    if config.participation is None:
        size = min(config.cohort_size, len(occupied))
        return np.sort(generator.choice(occupied, size, replace=False))
    drawn = occupied[generator.random(len(occupied)) < config.participation]
    return drawn if len(drawn) else generator.choice(occupied, 1)
