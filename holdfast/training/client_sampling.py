"""Which clients take part in a round: a function of the seed and the round."""

from __future__ import annotations

import math

import numpy as np

from holdfast.core import rng
from holdfast.method.config import Config


def draw(config: Config, occupied: np.ndarray, round: int) -> np.ndarray:
    """Draw the cohort of a round. If participation draws nobody, the round is drawn again.

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
    return drawn if len(drawn) else _draw_again(config, occupied, round)


def _draw_again(config: Config, occupied: np.ndarray, round: int) -> np.ndarray:
    """Draw the first cohort that is not empty.

    Repeated draws could take forever if the probability p is tiny. The result has the same distribution if the first
    client is drawn from a geometric distribution that ends at the last client, and the later ones with probability p.
    """
    p, number = float(config.participation or 0), len(occupied)
    generator = np.random.default_rng([config.seed, rng.COHORT, round, 1])
    log_miss = math.log1p(-p)  # p < 1: with p = 1 the first draw is not empty
    somebody = -math.expm1(number * log_miss)
    first = min(int(math.log1p(-generator.random() * somebody) / log_miss), number - 1)
    later = generator.random(number - first - 1) < p
    return occupied[first:][np.concatenate(([True], later))]
