"""The race: its error, its power, what it spends, and what it never looks at."""

from __future__ import annotations

import math
import statistics

import pytest
from scipy import stats

from helpers.simulated_race import SimulatedTrials, simulated
from holdfast.advice.budget import Budget, read_budget
from holdfast.advice.candidates import FEDAVG, FIELD, Candidate, Point, named
from holdfast.advice.elimination import chance, worse
from holdfast.advice.race import FRESH, Race, Rules
from holdfast.advice.screening import TRIALS, further
from holdfast.advice.trials import Trial, TrialOutcome
from holdfast.core.errors import HoldfastError
from holdfast.method.method import Method


def test_with_all_methods_equal_few_races_recommend_one():
    wrong = sum(simulated([0.0] * 8, salt)[0].recommended for salt in range(200))
    assert wrong <= 17  # nominally 5 %: a right one exceeds this with a probability of 1.2 %


def test_a_method_that_is_clearly_better_is_found():
    found = [simulated([0.0, 0.0, 0.02, 0.0, 0.01], salt)[0] for salt in range(40)]
    right = sum(result.recommended and result.leader.candidate.method == "prox(3)" for result in found)
    assert right >= 30


def test_methods_that_are_worse_are_never_recommended():
    assert not any(simulated([-0.02] * 5, salt)[0].recommended for salt in range(40))


def test_the_confirmation_uses_seeds_that_no_choice_has_seen():
    result, trials = simulated([0.03, 0.0], 1)
    assert result.recommended
    chosen_by = {trial.seed for trial in trials.ran if trial.seed < FRESH}
    assert set(result.fresh).isdisjoint(chosen_by)
    confirmed = [trial for trial in trials.ran if trial.seed >= FRESH]
    assert {t.point.candidate.method for t in confirmed} == {"prox(1)", "fedavg"}
    assert len(confirmed) == 2 * len(result.fresh)


def test_every_method_is_tuned_with_the_same_number_of_runs():
    _, trials = simulated([0.0] * 6, 2, setting=0.01)
    short = [trial for trial in trials.ran if trial.rounds == Rules(rounds=30).short]
    counts = {m: sum(t.point.candidate.method == m for t in short) for m in {t.point.candidate.method for t in short}}
    assert set(counts.values()) == {TRIALS}
    assert "fedavg" in counts


@pytest.mark.parametrize("budget", [1500, 4000, 20000])
def test_a_race_stays_close_to_its_budget(budget):
    for salt in range(5):
        result, trials = simulated([0.0] * 12, salt, budget=budget)
        assert result.spent == sum(trial.rounds for trial in trials.ran)
        assert result.spent <= budget * 1.1


def test_more_budget_screens_more_methods():
    few, many = (len(simulated([0.0] * 12, 0, budget=budget)[0].screened) for budget in (1500, 8000))
    assert few < many == 13


def test_a_budget_too_small_says_what_it_would_take():
    message = (
        "a budget of 100 rounds is too small: a race of 30 rounds on this data takes about 800 rounds; "
        "raise --budget, or lower --rounds"
    )
    with pytest.raises(HoldfastError) as error:
        simulated([0.0] * 3, 0, budget=100)
    assert str(error.value) == message


def test_fedavg_that_diverges_everywhere_is_an_error():
    class Diverging(SimulatedTrials):
        def run(self, trials):
            return [TrialOutcome(None, trial.rounds) for trial in trials]

    race = Race(Rules(rounds=30), [FEDAVG, Candidate("prox(1)", "")], Budget(4000, True), Diverging({}))
    with pytest.raises(HoldfastError) as error:
        race.result()
    assert str(error.value) == (
        "FedAvg diverged at every learning rate around 0.1: choose a smaller --lr to start from, or add --clip"
    )


def test_a_method_that_diverges_on_a_fresh_seed_is_not_recommended():
    class Fragile(SimulatedTrials):
        def run(self, trials):
            found = super().run(trials)
            broken = [t.seed == FRESH + 2 and t.point.candidate.method == "prox(1)" for t in trials]
            return [TrialOutcome(None, o.cost) if b else o for o, b in zip(found, broken, strict=True)]

    trials = Fragile({"fedavg": 0.7, "prox(1)": 0.8})
    result = Race(Rules(rounds=30), [FEDAVG, Candidate("prox(1)", "")], Budget(4000, True), trials).result()
    assert result.leader.candidate.method == "prox(1)"
    assert not result.recommended


def test_one_that_diverges_in_the_race_falls_out():
    class Late(SimulatedTrials):
        def run(self, trials):
            found = super().run(trials)
            broken = [t.rounds == 30 and t.point.candidate.method == "prox(1)" for t in trials]
            return [TrialOutcome(None, o.cost) if b else o for o, b in zip(found, broken, strict=True)]

    trials = Late({"fedavg": 0.7, "prox(1)": 0.8, "prox(2)": 0.75})
    field = [FEDAVG, Candidate("prox(1)", ""), Candidate("prox(2)", "")]
    result = Race(Rules(rounds=30), field, Budget(4000, True), trials).result()
    assert result.leader.candidate.method == "prox(2)"
    assert [raced.out for raced in result.raced if raced.point.candidate.method == "prox(1)"] == [1]


def test_the_paired_test_is_scipy_s():
    gaps = [0.4, -0.1, 0.3, 0.9, 0.2]
    assert chance(gaps) == pytest.approx(stats.ttest_1samp(gaps, 0, alternative="greater").pvalue, rel=1e-12)


def test_elimination_by_hand():
    scores = {"a": [0.9, 0.8, 0.85], "b": [0.5, 0.41, 0.44], "c": [0.88, 0.83, 0.84]}
    gaps = [0.4, 0.39, 0.41]
    p = stats.t.sf(statistics.fmean(gaps) / (statistics.stdev(gaps) / math.sqrt(3)), 2)
    assert worse(scores, level=2 * 4 * p * 1.01, looks=4) == ["b"]
    assert worse(scores, level=2 * 4 * p * 0.99, looks=4) == []
    assert worse({name: own[:2] for name, own in scores.items()}, 0.05, 1) == []  # too few seeds to judge


def test_equal_methods_rarely_fall_out_of_a_race():
    """The level holds for the whole race: over all methods and all looks."""
    errors = 0
    for salt in range(200):
        trials = SimulatedTrials({f"prox({i})": 0.7 for i in range(5)}, salt=salt)
        scores: dict[str, list[float]] = {method: [] for method in trials.truth}
        for seed in range(8):
            for method, own in scores.items():
                own.append(trials.score(Trial(Point(Candidate(method, ""), 0.1), 30, seed)))
            if worse(scores, 0.05, 8):
                errors += 1
                break
    assert errors <= 17


def test_the_parameter_is_tuned_at_the_best_rate():
    candidate = Candidate("prox(mu=0.01)", "", "prox.mu", (0.1, 1.0))
    points = [Point(candidate, lr) for lr in (0.03, 0.1, 0.3)]
    found = further(points, [TrialOutcome(0.1, 1), TrialOutcome(0.9, 1), TrialOutcome(None, 1)])
    assert [(p.lr, p.method) for p in found] == [(0.1, "prox(mu=0.1)"), (0.1, "prox(mu=1.0)")]


@pytest.mark.parametrize("candidate", FIELD, ids=lambda c: c.method)
def test_every_candidate_can_be_built_at_every_value(candidate):
    for value in (None, *candidate.values):
        method = Point(candidate, 0.1, value).method
        assert Method.parse(method)
    if candidate.parameter:
        texts = {str(Method.parse(Point(candidate, 0.1, value).method)) for value in (None, *candidate.values)}
        assert len(texts) == 1 + len(candidate.values)


def test_methods_named_by_the_user():
    found = named(["scaffold", "fedavg", "prox(mu=0.01)", "prox(0.3)"])
    assert [c.method for c in found] == ["fedavg", "scaffold", "prox(mu=0.01)", "prox(0.3)"]
    assert [c.parameter for c in found] == ["", "", "prox.mu", ""]
    with pytest.raises(HoldfastError) as error:
        named(["fedavg"])
    assert str(error.value) == "a race needs at least one method beside fedavg: name it, or leave --methods out"


@pytest.mark.parametrize("text", ["", "10", "ten minutes", "-5m", "0s", "10m 5s", "5 round"])
def test_a_budget_that_cannot_be_read(text):
    with pytest.raises(HoldfastError) as error:
        read_budget(text)
    assert str(error.value) == (
        f"budget {text!r}: expected a time such as 90s, 10m or 2h, or a number of rounds: '500 rounds'"
    )
