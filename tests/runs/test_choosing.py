"""Best round and early stopping go by validation data; the test data is touched to report, never to choose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.exact_errors import raises_exactly
from holdfast import Federation, federate, from_arrays, load, run
from holdfast.metrics.metric_names import metric_named
from holdfast.runs.early_stopping import best_round, stopped
from holdfast.runs.history import summarize
from holdfast.training.round_record import RoundRecord

SETTINGS: dict[str, Any] = {"model": "linear", "cohort": 2, "steps": 3, "lr": 0.5, "rounds": 40, "stop_after": 3}


def record(t: int, validation: float | None, test: float | None = None) -> RoundRecord:
    found = {} if validation is None else {"accuracy": validation}
    return RoundRecord(t, 1.0, 0.1, 1, 1, [0], {} if test is None else {"accuracy": test}, found)


@pytest.mark.parametrize(
    ("scores", "patience", "ends"),
    [
        ([0.1, 0.2, 0.3], 1, None),
        ([0.3, 0.2], 1, 2),
        ([0.3, 0.2, 0.4, 0.4, 0.4], 2, 5),  # an equal score is no better one
        ([0.3, None, 0.2, None, 0.1], 2, 5),  # rounds without evaluation do not count
        ([0.3, 0.2, 0.1, 0.4], 3, None),
        ([None, None], 1, None),
    ],
)
def test_the_rule_of_early_stopping(scores: list[float | None], patience: int, ends: int | None) -> None:
    records = [record(t, score) for t, score in enumerate(scores, start=1)]
    found = [t for t in range(1, len(records) + 1) if stopped(records[:t], metric_named("accuracy"), patience)]
    assert (found[0] if found else None) == ends
    assert not stopped(records, metric_named("accuracy"), None)


def test_lower_is_better_for_a_loss() -> None:
    assert best_round([(1, 0.5), (2, 0.3), (3, 0.3)], metric_named("loss")) == 2
    assert best_round([(1, 0.5), (2, 0.3), (3, 0.7)], metric_named("accuracy")) == 3
    assert best_round([], metric_named("loss")) is None


def test_the_best_round_is_chosen_by_validation_and_its_test_score_is_reported() -> None:
    records = [record(1, 0.5, 0.9), record(2, 0.8, 0.6), record(3, 0.7, 0.7)]
    summary = summarize(records, metric_named("accuracy"))
    assert (summary["best_round"], summary["best"], summary["chosen_on"]) == (2, 0.6, "validation")
    without = [replace(r, validation={}) for r in records]
    summary = summarize(without, metric_named("accuracy"))
    assert (summary["best_round"], summary["best"], summary["chosen_on"]) == (1, 0.9, "test")


def federation(shuffled: bool = False, **more: Any) -> Federation:
    data = load("digits")
    if shuffled:
        order = torch.randperm(len(data.test_y), generator=torch.Generator().manual_seed(1))
        data = replace(data, test_y=data.test_y[order])
    return federate(data, clients=6, validation=0.2, **more)


@pytest.mark.parametrize("pool", ["clients", "pool"])
@pytest.mark.parametrize("method", ["fedavg", "scaffold+fedbug(0.4)"])
def test_shuffled_test_labels_change_no_choice_no_weight_and_no_stopping_round(method: str, pool: str) -> None:
    true, wrong = (run(method, federation(s, validation_from=pool), **SETTINGS) for s in (False, True))
    assert torch.equal(true.w, wrong.w)
    assert [r.validation for r in true.history] == [r.validation for r in wrong.history]
    assert [r.test for r in true.history] != [r.test for r in wrong.history]
    keys = ("best_round", "rounds", "stopped_early", "chosen_on")
    assert [true.summary[key] for key in keys] == [wrong.summary[key] for key in keys]
    assert true.summary["stopped_early"]
    assert true.summary["rounds"] < 40
    assert true.finished


def test_a_run_that_is_interrupted_stops_where_an_uninterrupted_one_does(tmp_path: Path) -> None:
    whole = run("scaffold", federation(), out=tmp_path / "whole", **SETTINGS)
    count = iter(range(100))
    first = run("scaffold", federation(), out=tmp_path / "cut", stop=lambda: next(count) == 3, **SETTINGS)
    assert not first.finished
    again = run(None, federation(), out=tmp_path / "cut", resume=True)
    assert torch.equal(again.w, whole.w)
    assert again.summary["rounds"] == whole.summary["rounds"]
    assert (tmp_path / "cut" / "summary.json").exists()
    once_more = run(None, federation(), out=tmp_path / "cut", resume=True)
    assert once_more.summary["rounds"] == whole.summary["rounds"]
    further = run(None, federation(), out=tmp_path / "cut", resume=True, stop_after=30)
    assert further.summary["rounds"] > whole.summary["rounds"]


def test_what_cannot_choose_is_refused() -> None:
    with raises_exactly("stop_after goes by validation data, and there are none: add --validation 0.1"):
        run("fedavg", stop_after=3)
    with raises_exactly("ccvr works in the last round, which stop_after does not know: leave out one of them"):
        run("ccvr", stop_after=3, validation=0.1)
    with raises_exactly("client_test has no effect without client_eval: add --client-eval, or leave it out"):
        run("fedavg", client_test=0.3)
    tokens = [[i % 3] * 4 for i in range(60)]
    with raises_exactly("the network mlp does not predict a token at every position; use lstm, or a model of your own"):
        run("fedavg", federate(from_arrays(tokens, tokens), "iid", clients=2))
    with raises_exactly("rmse does not fit classification; use one of " + ", ".join(fitting_names())):
        run("fedavg", metric="rmse")


def fitting_names() -> list[str]:
    from holdfast.metrics.metric_names import fitting
    from holdfast.tasks.classification import Classification

    return fitting(Classification())
