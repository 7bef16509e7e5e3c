"""What is not finite, or not possible, stays out of a round: gradients before it, updates in it, surveys after it."""

from __future__ import annotations

import pytest
import torch

from helpers.toys import ENGINES, FEDERATION, train
from holdfast.parts.ccvr import LARGEST, Ccvr
from holdfast.training.round import Diverged, mean_loss
from holdfast.training.simulation import Simulation

every_engine = pytest.mark.parametrize("engine", ENGINES)
FIXED_POINT = "fedagg(mode=fixed_point, sweeps=1, min_rate=0, max_rate=0.9)"
OCCUPIED = len(FEDERATION.occupied)


def spoil_gradients(monkeypatch, rows):
    """Make some rows of every cohort's gradients NaN."""
    real = Simulation.gradients

    def gradients(self, broadcast, ids, at):
        found = real(self, broadcast, ids, at).clone()
        found[rows] = float("nan")
        return found

    monkeypatch.setattr(Simulation, "gradients", gradients)


@every_engine
def test_a_gradient_that_is_not_finite_is_left_out_of_the_mean(engine, monkeypatch):
    """The rates are those of the other clients of the cohort."""
    settings = {"engine": engine, "rounds": 1, "cohort": OCCUPIED}
    real = Simulation.gradients
    monkeypatch.setattr(Simulation, "gradients", lambda self, b, ids, at: real(self, b, ids[1:], at))
    expected = train(FIXED_POINT, **settings).after[1]["w"]
    monkeypatch.undo()
    spoil_gradients(monkeypatch, [0])
    torch.testing.assert_close(train(FIXED_POINT, **settings).after[1]["w"], expected)


def test_a_cohort_without_any_finite_gradient_has_diverged(monkeypatch):
    spoil_gradients(monkeypatch, slice(None))
    with pytest.raises(Diverged) as error:
        train(FIXED_POINT, rounds=1)
    assert str(error.value) == "round 1: no client's gradient is finite; lower --lr, or add --clip"


def survey_with(monkeypatch, change):
    """Let ``change`` spoil the measurements of the first client of every group."""
    real = Simulation.survey

    def survey(self, broadcast, parts):
        for asked, found in real(self, broadcast, parts):
            change(found["ccvr"])
            yield asked, found

    monkeypatch.setattr(Simulation, "survey", survey)


def minus_first(rows):
    for name in list(rows):
        rows[name] = rows[name][1:]


@every_engine
@pytest.mark.parametrize(
    ("name", "value"), [("count", -1.0), ("count", 0.5), ("sum", float("nan")), ("squares", float("inf"))]
)
def test_a_survey_row_that_is_not_possible_is_left_out(engine, name, value, monkeypatch):
    """The head is refitted to the other clients' features."""
    settings = {"engine": engine, "rounds": 1}
    with monkeypatch.context() as patch:
        survey_with(patch, minus_first)
        expected = train("ccvr", **settings).after[1]
    survey_with(monkeypatch, lambda rows: rows[name][0].fill_(value))
    after = train("ccvr", **settings).after[1]
    assert not torch.equal(after["served"], after["w"])
    torch.testing.assert_close(after["served"], expected["served"])


def test_which_counts_and_sums_are_possible():
    honest = {
        "count": torch.tensor([[2.0, 0.0]], dtype=torch.float64),
        "sum": torch.tensor([[[3.0], [0.0]]], dtype=torch.float64),
        "squares": torch.tensor([[[5.0], [0.0]]], dtype=torch.float64),
    }
    bad = [
        ("count", [2.0, -1.0]), ("count", [2.5, 0.0]), ("count", [2.0**49, 0.0]), ("count", [0.0, 0.0]),
        ("sum", [[3.0], [1.0]]), ("sum", [[3 * LARGEST], [0.0]]), ("squares", [[5.0], [1.0]]),
        ("squares", [[3 * LARGEST**2], [0.0]]),
    ]  # fmt: skip
    assert Ccvr().possible(honest).tolist() == [True]
    for name, values in bad:
        row = {name: torch.tensor([values], dtype=torch.float64)}
        assert Ccvr().possible(honest | row).tolist() == [False], (name, values)


def test_a_mean_loss_counts_what_is_finite():
    n = torch.tensor([1, 3, 4])
    assert float(mean_loss(n, torch.tensor([2.0, 4.0, float("nan")]))) == 3.5
    assert float(mean_loss(n, torch.tensor([1.0, 1.0, 3.0]))) == 2.0
    assert torch.isnan(mean_loss(n, torch.full((3,), float("nan"))))
