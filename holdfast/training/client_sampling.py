"""Which clients take part in a round: a function of the seed and the round."""

from __future__ import annotations

import math

import numpy as np

from holdfast.core import rng
from holdfast.method.config import Config


def draw(
    config: Config,
    occupied: np.ndarray | range,
    round: int,
    again: bool = True,
    generator: np.random.Generator | None = None,
) -> np.ndarray:
    """Draw the cohort of a round.

    Args:
        config: The run; it fixes the size of the cohort or the probability of taking part.
        occupied: The clients that have samples; no others are drawn. A range from 0 stands for clients that are made on
            demand: it takes time and memory for the cohort alone, however many there are.
        round: The number of the round, from 1.
        again: Whether a round in which nobody takes part is drawn again.
        generator: Makes the random numbers; by default they follow from the seed and the round.

    Returns:
        The client ids, ascending.
    """
    generator = generator or np.random.default_rng([config.seed, rng.COHORT, round])
    if config.participation is None:
        size = min(config.cohort_size, len(occupied))
        # NumPy draws the same places from a number as from an array of that length.
        whom = len(occupied) if isinstance(occupied, range) else occupied
        return np.sort(generator.choice(whom, size, replace=False))
    if isinstance(occupied, range):
        return _draw_by_number(config.participation, len(occupied), generator, again)
    drawn = occupied[generator.random(len(occupied)) < config.participation]
    return drawn if len(drawn) or not again else _draw_again(config, occupied, round)


def _draw_again(config: Config, occupied: np.ndarray, round: int) -> np.ndarray:
    """Draw the first cohort that is not empty.

    Repeated draws could take forever if the probability p is tiny. The result has the same distribution if the first
    client is drawn from a geometric distribution that ends at the last client, and the later ones with probability p.
    """
    p, number = float(config.participation or 0), len(occupied)
    generator = np.random.default_rng([config.seed, rng.COHORT, round, 1])
    first = _first(p, number, generator)
    later = generator.random(number - first - 1) < p
    return occupied[first:][np.concatenate(([True], later))]


def _draw_by_number(p: float, clients: int, generator: np.random.Generator, again: bool) -> np.ndarray:
    """Draw how many of these clients take part, which is binomial, and then who does.

    Every cohort has the probability that it has if each client is drawn by itself, but not with the same seed. A round
    in which nobody is drawn is drawn again as ``_draw_again`` does it.
    """
    number = int(generator.binomial(clients, p))
    if number or not again:
        return np.sort(generator.choice(clients, number, replace=False))
    first = _first(p, clients, generator)
    rest = clients - first - 1
    later = generator.choice(rest, int(generator.binomial(rest, p)), replace=False) if rest else np.empty(0, np.int64)
    return np.concatenate(([first], first + 1 + np.sort(later)))


def _first(p: float, clients: int, generator: np.random.Generator) -> int:
    """Draw the first client that takes part from a geometric distribution that ends at the last client."""
    log_miss = math.log1p(-p)  # p < 1: with p = 1 everybody takes part
    somebody = -math.expm1(clients * log_miss)
    return min(int(math.log1p(-generator.random() * somebody) / log_miss), clients - 1)
