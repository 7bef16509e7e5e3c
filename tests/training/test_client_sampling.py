"""Who takes part in a round: the distribution of cohorts, and that rounds which were drawn before stay as they were."""

from __future__ import annotations

import math

import numpy as np
import pytest

from holdfast.core import rng
from holdfast.method.config import Config
from holdfast.training.client_sampling import draw

ROUNDS = 20_000


def first_draw(config: Config, occupied: np.ndarray, round: int) -> np.ndarray:
    """Every client on its own, once."""
    uniform = np.random.default_rng([config.seed, rng.COHORT, round]).random(len(occupied))
    return occupied[uniform < config.participation]


@pytest.mark.parametrize(("clients", "p"), [(100, 0.01), (5, 0.1), (3, 0.5)])
def test_sizes_are_binomial_given_that_somebody_takes_part(clients, p):
    config, occupied = Config(clients=clients, participation=p), np.arange(clients)
    sizes = np.array([len(draw(config, occupied, t)) for t in range(1, ROUNDS + 1)])
    somebody = 1 - (1 - p) ** clients
    for size in range(clients + 1):
        share = math.comb(clients, size) * p**size * (1 - p) ** (clients - size) / somebody if size else 0.0
        error = 5 * math.sqrt(share * (1 - share) / ROUNDS)
        assert abs((sizes == size).mean() - share) <= error + 1e-4
    mean = clients * p / somebody
    assert sizes.mean() == pytest.approx(mean, abs=5 * sizes.std() / math.sqrt(ROUNDS))
    if clients == 100:
        assert mean == pytest.approx(1.577, abs=1e-3)  # as in published code that draws again; adding one gave 1.366


def test_rounds_that_are_drawn_again_have_the_same_distribution():
    """Given that nobody was drawn at first: sizes, and who takes part with whom, are those of any other round."""
    config, occupied = Config(clients=4, participation=0.3), np.arange(4)
    rounds = [t for t in range(1, 3 * ROUNDS) if not len(first_draw(config, occupied, t))]
    assert len(rounds) > 10_000
    subsets = np.array([sum(1 << i for i in draw(config, occupied, t)) for t in rounds])
    for subset in range(1, 16):
        size = subset.bit_count()
        share = 0.3**size * 0.7 ** (4 - size) / (1 - 0.7**4)
        assert abs((subsets == subset).mean() - share) <= 5 * math.sqrt(share * (1 - share) / len(rounds))


def test_rounds_with_somebody_are_drawn_as_ever():
    config, occupied = Config(clients=30, participation=0.1, seed=3), np.arange(0, 60, 2)
    rounds = [(t, first_draw(config, occupied, t)) for t in range(1, 200)]
    kept = [(t, drawn) for t, drawn in rounds if len(drawn)]
    assert 150 < len(kept) < 199
    for t, drawn in kept:
        assert np.array_equal(draw(config, occupied, t), drawn)


@pytest.mark.parametrize("p", [1e-9, 1e-300])
def test_a_tiny_probability_draws_one_client_at_once(p):
    config, occupied = Config(clients=10, participation=p), np.arange(5, 15)
    drawn = [draw(config, occupied, t).tolist() for t in range(1, 2001)]
    assert {len(ids) for ids in drawn} == {1}
    counts = np.bincount([ids[0] - 5 for ids in drawn], minlength=10)
    assert (abs(counts - 200) < 5 * 13.4).all()


def test_one_client_is_always_drawn():
    for p in (1e-9, 0.5, 1.0):
        config = Config(clients=1, participation=p)
        assert all(draw(config, np.array([0]), t).tolist() == [0] for t in range(1, 20))
