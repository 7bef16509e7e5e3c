"""Successive halving: who continues, what it costs, and what it loses where curves cross."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from helpers.places import ROOT
from holdfast.comparison.study_schema import MetricFacts
from holdfast.tuning.halving import CUTS, Halving, best, rungs_of, trials_within

ACCURACY, RMSE = MetricFacts(), MetricFacts("rmse", False, False)
ORDERS = st.integers(1, 40).flatmap(lambda n: st.permutations(range(n)))


def winner(halving: Halving, curves: dict[int, list[float | None]], metric: MetricFacts = ACCURACY) -> int | None:
    """Walk through all stages, with a score per trial and rung, and return the best of those that finish."""

    def score(trial: int, rung: int) -> float | None:
        return curves[trial][halving.rungs.index(rung)]

    ended: list[int] = []
    for rung, numbers in halving.stages(score, metric):
        assert rung in halving.rungs
        ended = numbers
    return next(iter(best(ended, halving.rungs[-1], score, metric)), None)


@given(ORDERS, st.integers(1, 6), st.lists(st.floats(-3, 3), min_size=CUTS + 1, max_size=CUTS + 1), st.booleans())
def test_the_best_of_curves_that_do_not_cross_is_never_dropped(
    order: list[int], factor: int, shifts: list[float], higher: bool
):
    """From the first rung on the order of the trials stays, whatever the scores; so its first one must win."""
    halving = Halving(len(order), rungs_of(30, factor, 1), factor)
    scale = 1 if higher else -1
    curves = {n: [scale * (place * 0.01 + shift) for shift in shifts] for n, place in enumerate(order)}
    assert winner(halving, curves, ACCURACY if higher else RMSE) == order.index(max(order))


@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 200), st.integers(1, 5))
def test_the_rounds_are_those_announced(trials: int, factor: int, rounds: int, every: int):
    halving = Halving(trials, rungs_of(rounds, factor, every), factor)
    assert all(rung % every == 0 for rung in halving.rungs[:-1])
    assert halving.rungs[-1] == rounds
    reached = dict.fromkeys(range(trials), 0)
    for rung, numbers in halving.stages(lambda trial, rung: float(trial), ACCURACY):
        for n in numbers:
            reached[n] = rung
    assert sum(reached.values()) == halving.rounds
    assert rounds <= halving.rounds <= trials * rounds


@given(st.integers(30, 3000))
def test_a_budget_is_used_and_never_exceeded(budget: int):
    rungs = rungs_of(30, 3, 1)
    trials = trials_within(budget, rungs, 3)
    assert Halving(trials, rungs, 3).rounds <= budget < Halving(trials + 1, rungs, 3).rounds


def test_trials_that_diverge_do_not_continue():
    halving = Halving(4, (1, 2), 2)
    assert winner(halving, {0: [None, 9], 1: [1, 1], 2: [2, 0], 3: [None, None]}) == 1
    assert winner(halving, {n: [None, None] for n in range(4)}) is None


def test_of_equal_trials_the_first_continues():
    assert best([2, 0, 1], 1, lambda trial, rung: 0.5, ACCURACY) == [0, 1, 2]


# -- curves that cross ------------------------------------------------------------------------------------------------
def crossing(rng: np.random.Generator, trials: int) -> np.ndarray:
    """Accuracy of trials over 30 rounds: rise to a level at a speed of its own, with noise in every evaluation."""
    level, pace = rng.uniform(0.5, 0.95, (trials, 1)), np.exp(rng.uniform(0, np.log(30), (trials, 1)))
    return level * (1 - np.exp(-np.arange(1, 31) / pace)) + rng.normal(0, 0.01, (trials, 30))


def losses(repeats: int) -> tuple[float, float, float]:
    """How far the chosen score stays below the best of 27, in points: by halving, and by as many rounds of whole runs;
    and how often halving finds the best."""
    halving, rng = Halving(27, rungs_of(30, 3, 1), 3), np.random.default_rng(0)
    whole = halving.rounds // 30
    halved, few, hits = [], [], 0
    for _ in range(repeats):
        curves = crossing(rng, 27)
        chosen = winner(halving, {n: [row[r - 1] for r in halving.rungs] for n, row in enumerate(curves)})
        hits += chosen == curves[:, -1].argmax()
        halved.append(curves[:, -1].max() - curves[chosen, -1])
        few.append(curves[:, -1].max() - curves[:whole, -1].max())
    return 100 * float(np.mean(halved)), 100 * float(np.mean(few)), 100 * hits / repeats


def test_the_loss_on_curves_that_cross_is_the_documented_one():
    page = (ROOT / "docs" / "tune.md").read_text(encoding="utf-8")
    found = re.search(r"stays ([\d.]+) points below .*?([\d.]+) points.*?in (\d+) %", page, re.DOTALL)
    assert found
    assert [float(text) for text in found.groups()] == [
        round(v, d) for v, d in zip(losses(1000), (2, 2, 0), strict=True)
    ]
