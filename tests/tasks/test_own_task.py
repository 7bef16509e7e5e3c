"""A user's own task, and the four of ours, from a file to the answers of ``holdfast predict``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.commands import good, refused
from holdfast import load_run

OWN = """
import numpy as np
import torch
import holdfast
from dataclasses import dataclass


@dataclass(frozen=True)
class Absolute(holdfast.Regression):
    name = "absolute"

    def loss(self, outputs, y, weight=None):
        return (outputs - y.to(outputs.dtype)).abs().mean(1)


def numbers():
    x = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    return x, 500 + 100 * x[:, 0]


def labels():
    x = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    return x, (x[:, :2] > 0).astype(int)
"""
FLAGS = ("--clients", "4", "--model", "linear", "--rounds", "6", "--split", "dirichlet(0.3)")


@pytest.fixture(autouse=True)
def _own(elsewhere: None) -> None:
    Path("own.py").write_text(OWN)
    np.save("x.npy", np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32))


def test_an_own_task_works_by_its_name_and_is_loaded_again() -> None:
    good(
        "run", "fedavg", "--data", "own.py:numbers", "--import", "own.py", "--task", "absolute", *FLAGS, "--out", "run"
    )
    summary = json.loads(Path("run/summary.json").read_text())
    assert (summary["task"], summary["metric"]) == ("absolute", "rmse")
    result = load_run("run")
    history = [json.loads(line) for line in Path("run/history.jsonl").read_text().splitlines()]
    task = result.task
    assert task.name == "absolute"
    residual = history[-1]["test"]["rmse"]
    assert 0 < residual < 60  # the targets have a standard deviation of 100
    assert history[-1]["test"]["loss"] <= residual / task.std[0]


def test_numbers_are_predicted_in_the_unit_of_the_data() -> None:
    good("run", "fedavg", "--data", "own.py:numbers", *FLAGS, "--rounds", "30", "--out", "run")
    answer = [line.split(",") for line in good("predict", "run", "--data", "x.npy").out.splitlines()]
    assert answer[0] == ["sample", "y"]
    x = np.load("x.npy")
    found = [float(line[1]) for line in answer[1:]]
    assert found == pytest.approx((500 + 100 * x[:, 0]).tolist(), abs=15)
    assert found == pytest.approx(load_run("run").predict(x)[:, 0].tolist(), rel=1e-5)


def test_labels_are_predicted_with_their_probabilities() -> None:
    good("run", "fedavg", "--data", "own.py:labels", *FLAGS, "--out", "run")
    answer = [line.split(",") for line in good("predict", "run", "--data", "x.npy").out.splitlines()]
    assert answer[0] == ["sample", "labels", "y0", "y1"]
    p = load_run("run").predict_proba(np.load("x.npy"))
    for line, row in zip(answer[1:], p, strict=True):
        assert line[1] == " ".join(name for name, share in zip(("y0", "y1"), row, strict=True) if share > 0.5)
        assert [float(v) for v in line[2:]] == pytest.approx(row.tolist(), abs=1e-6)


def test_a_task_that_does_not_fit_is_refused() -> None:
    assert refused("run", "fedavg", "--data", "own.py:labels", "--task", "regression", *FLAGS) == (
        "holdfast: own.py:labels is data for multilabel, not for regression: leave out task, or prepare its targets\n"
    )
    assert refused("run", "fedlc", "--data", "own.py:numbers", *FLAGS) == (
        "holdfast: fedlc needs one class per sample, not regression; leave fedlc out\n"
    )
