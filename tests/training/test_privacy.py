"""Epsilon against the accountant's own examples and closed forms; noise for a planned run; what a summary says."""

from __future__ import annotations

import json
import math

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting import pld
from scipy.stats import kstest, norm

from helpers.toys import train
from holdfast import HoldfastError
from holdfast.core import gaussian_noise as noises
from holdfast.core import rng
from holdfast.method.config import Config
from holdfast.training.privacy import PrivacyAccountant, noise_for


def delta_of_gaussian(sigma: float, epsilon: float) -> float:
    """The delta of one Gaussian mechanism of sensitivity 1 (Balle and Wang 2018, Theorem 8)."""
    return norm.cdf(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma)


@pytest.mark.parametrize(("z", "rounds"), [(1.0, 1), (2.0, 16), (0.7, 4)])
def test_everybody_in_every_round_is_one_gaussian_mechanism(z, rounds):
    """T rounds with noise z are one with noise z / sqrt(T)."""
    found = PrivacyAccountant(z, 1e-5, 1.0).epsilon(rounds)
    assert delta_of_gaussian(z / math.sqrt(rounds), found) == pytest.approx(1e-5, rel=0.02)
    replaced = PrivacyAccountant(z, 1e-5, None).epsilon(rounds)
    assert delta_of_gaussian(z / math.sqrt(rounds) / 2, replaced) == pytest.approx(1e-5, rel=0.02)


@pytest.mark.parametrize(("z", "p", "rounds"), [(1.0, 0.1, 30), (0.6, 0.3, 5), (2.0, 0.01, 200)])
def test_poisson_sampling_is_that_of_the_package(z, p, rounds):
    exact = pld.PLDAccountant(value_discretization_interval=1e-3)
    exact.compose(dp_accounting.PoissonSampledDpEvent(p, dp_accounting.GaussianDpEvent(z)), rounds)
    found, expected = PrivacyAccountant(z, 1e-5, p).epsilon(rounds), exact.get_epsilon(1e-5)
    assert expected * (1 - 1e-6) <= found <= 1.01 * expected  # from above


@pytest.mark.parametrize(
    ("z", "p", "delta"), [(math.sqrt(3), 1.0, 0.126936), (0.5, 0.2, 0.15594)], ids=["everybody", "sampled"]
)
def test_three_rounds_as_in_the_package_s_own_tests(z, p, delta):
    """Epsilon is 1, to 1e-3, in the tests of PLDAccountant that dp-accounting comes with."""
    assert PrivacyAccountant(z, delta, p).epsilon(3) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(("rounds", "p", "z"), [(1, 0.01, 0.67379294682), (25, 0.001, 3.20956502598 / 6)])
def test_noise_as_in_the_package_s_own_tests(rounds, p, z):
    """The smallest noise for epsilon 1 and delta 1e-5, by the package's own search; ours is no smaller."""
    found = noise_for(Config(clients=50, rounds=rounds, delta=1e-5, participation=p), 1.0, 50)
    assert z * (1 - 1e-3) <= found <= 1.02 * z


def test_one_round_of_poisson_sampling_by_hand():
    """With probability p the Gaussian mechanism, else nothing: delta = sup over epsilon' (Balle et al. 2018)."""
    z, p = 0.8, 0.2
    found = PrivacyAccountant(z, 1e-5, p).epsilon(1)
    inner = math.log(1 + (math.exp(found) - 1) / p)
    assert p * delta_of_gaussian(z, inner) == pytest.approx(1e-5, rel=0.02)


def test_a_fixed_cohort_is_bounded_by_both_ways_of_counting():
    alone = PrivacyAccountant(2.0, 1e-5, None, 1.0).epsilon(50)
    sampled = PrivacyAccountant(2.0, 1e-5, None, 0.1).epsilon(50)
    poisson = PrivacyAccountant(1.0, 1e-5, 0.1).epsilon(50)  # replacing moves the sum twice as far
    assert poisson < sampled < alone
    assert PrivacyAccountant(8.0, 1e-5, None, 0.5).epsilon(50) <= PrivacyAccountant(8.0, 1e-5, None).epsilon(50)


def test_without_noise_epsilon_is_infinite():
    assert PrivacyAccountant(0.0, 1e-5, 0.1).epsilon(1) == math.inf


@pytest.mark.parametrize("settings", [{"participation": 0.1}, {"cohort": 5}])
def test_noise_for_a_planned_run(settings):
    config = Config(clients=50, rounds=40, delta=1e-5, **settings)
    z = noise_for(config, 4.0, 50)
    share = 0.1 if "cohort" in settings else 1.0
    found = PrivacyAccountant(z, 1e-5, config.participation, share).epsilon(40)
    assert 3.9 < found <= 4.0 + 1e-6


def test_epsilon_is_in_history_and_summary_and_bounds_the_rounds(tmp_path):
    settings = {"epsilon": 20, "delta": 1e-3, "cohort": None, "participation": 0.5, "engine": "vector"}
    ran = train("dp", out=tmp_path, **settings)
    spent = [record.epsilon for record in ran.history]
    assert spent == sorted(spent)
    assert 19 < spent[-1] <= 20
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [line["epsilon"] for line in lines] == spent
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["epsilon"] == spent[-1]
    assert summary["delta"] == 1e-3
    assert summary["neighbours"] == "add or remove one client"
    assert "the training loss and who took part, in history.jsonl" in summary["not_covered"]
    with pytest.raises(HoldfastError, match=r"9 rounds with the noise of this run reveal epsilon .*, more than 20"):
        train("dp", out=tmp_path, resume=True, **{**settings, "rounds": 9})


def test_a_run_says_when_the_package_is_missing(monkeypatch):
    monkeypatch.setattr("holdfast.training.privacy.find_spec", lambda name: None)
    with pytest.raises(HoldfastError) as error:
        train("dp")
    assert str(error.value) == (
        "dp needs the package dp-accounting, which is not installed: pip install 'holdfast[dp]'"
    )


@pytest.mark.parametrize("made", ["keyed", "from_system"])
def test_noise_is_normal_to_its_tails(made):
    source = noises.keyed(lambda: rng.key(3)) if made == "keyed" else noises.from_system
    found = source(torch.zeros(200_000, dtype=torch.float64)).numpy()
    if made == "keyed":
        assert kstest(found, "norm").pvalue > 1e-3
    else:  # another sample in every test: a looser bound, so that chance never fails it
        assert kstest(found, "norm").pvalue > 1e-9
    assert np.abs(found).max() > 3.8


def test_keyed_noise_repeats_and_that_of_the_system_does_not():
    zeros = torch.zeros(5)
    one, two, other = (noises.keyed(lambda k=k: rng.key(k))(zeros) for k in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert not torch.equal(noises.from_system(zeros), noises.from_system(zeros))
