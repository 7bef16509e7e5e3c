"""The floor: what a model without inputs gets, by formulas that use no network."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import log_loss, r2_score, root_mean_squared_error

import holdfast
from helpers.commands import good
from holdfast.cli.score_table import score_lines
from holdfast.data.deal import Deal
from holdfast.metrics.metric_names import every_metric
from holdfast.tasks.next_token import NextToken
from holdfast.training.floor import floor

RNG = np.random.default_rng(0)


def floor_of(federation: holdfast.Federation) -> dict[str, float]:
    return floor(federation, every_metric(federation.data.task))


def test_nine_per_cent_of_positives():
    """An accuracy of 0.91 is the floor; recall and AUROC say that nothing was learned."""
    y = (np.arange(1000) % 100 < 9).astype(int)
    x = RNG.normal(size=(1000, 3))
    federation = holdfast.federate(holdfast.from_arrays(x, y, x, y), split="iid", clients=4)
    found = floor_of(federation)
    assert found["accuracy"] == 0.91
    assert found["balanced_accuracy"] == found["auroc"] == 0.5
    assert found["recall"] == found["precision"] == 0
    assert found["log_loss"] == pytest.approx(-(0.09 * math.log(0.09) + 0.91 * math.log(0.91)))


def test_classes_as_scikit_learns_dummy():
    y, test_y = RNG.choice(4, 300, p=[0.5, 0.3, 0.15, 0.05]), RNG.choice(4, 100)
    x = RNG.normal(size=(300, 2))
    federation = holdfast.federate(holdfast.from_arrays(x, y, x[:100], test_y), split="dirichlet(0.5)", clients=4)
    dummy = DummyClassifier(strategy="prior").fit(x, y)
    found = floor_of(federation)
    assert found["accuracy"] == pytest.approx(dummy.score(x[:100], test_y))
    assert found["log_loss"] == pytest.approx(log_loss(test_y, dummy.predict_proba(x[:100])))


def test_only_the_clients_training_samples_count():
    """Class 0 is the majority of the data, but not of what the clients hold."""
    x, y = RNG.normal(size=(220, 2)), np.repeat([0, 1], [120, 100])
    federation = holdfast.federate(holdfast.from_arrays(x, y, x, y), split="iid", clients=1)
    assert floor_of(federation)["accuracy"] == pytest.approx(120 / 220)
    held = np.arange(60, 220)
    fewer = replace(federation, deal=Deal(held, np.array([0, len(held)])))
    assert floor_of(fewer)["accuracy"] == pytest.approx(100 / 220)


def test_with_a_model_at_every_client_it_is_the_mean_over_clients():
    """As the score of such a run is: on each client's own test samples, or on its class mix of the test data."""
    y, test_y = np.repeat([0, 1, 0, 1], [60, 5, 10, 20]), np.repeat([0, 1], [90, 10])
    x, owner = RNG.normal(size=(95, 2)), np.repeat(["north", "south"], [65, 30])
    data = holdfast.from_arrays(x, y, RNG.normal(size=(100, 2)), test_y, groups=owner)
    known = every_metric(data.task)
    fed = holdfast.federate(data, client_test=0.3)
    assert fed.client_test is not None
    own = [data.y[torch.from_numpy(fed.client_test.client(i))].numpy() for i in range(2)]
    found = floor(fed, known, over_clients=True)
    assert found["accuracy"] == pytest.approx(np.mean([(part == 0).mean() for part in own]))
    assert found["accuracy"] != pytest.approx(floor(fed, known)["accuracy"], abs=0.01)
    mixed = floor(holdfast.federate(data), known, over_clients=True)
    assert mixed.keys() == {"accuracy", "loss"}
    assert mixed["accuracy"] == pytest.approx((60 / 65 + 10 / 30) / 2)


def test_a_class_without_training_samples_has_a_finite_loss():
    data = holdfast.DataSet(
        "odd", torch.zeros(9, 2), torch.tensor([0] * 6 + [1] * 3), torch.zeros(1, 2), torch.tensor([2]), ("a", "b", "c")
    )
    found = floor_of(holdfast.federate(data, split="iid", clients=2))
    assert found["log_loss"] == pytest.approx(math.log(10)), "as one sample of ten"


def test_labels():
    y = (RNG.random((200, 3)) < [0.1, 0.5, 0.9]).astype(int)
    y[:, 2], y[0, 2] = 1, 1
    x = RNG.normal(size=(200, 2))
    federation = holdfast.federate(holdfast.from_arrays(x, y, x, y), split="iid", clients=4)
    found, share = floor_of(federation), y.mean(0)
    assert found["accuracy"] == pytest.approx(np.maximum(share, 1 - share).mean())
    q = np.clip(share, 1 / 201, 200 / 201)
    by_hand = -(y * np.log(q) + (1 - y) * np.log(1 - q)).mean()
    assert found["log_loss"] == pytest.approx(by_hand)
    assert found["auroc"] == 0.5


def test_numbers_as_scikit_learns_dummy():
    y = 100 + 7 * RNG.normal(size=(120, 2))
    x = RNG.normal(size=(120, 3))
    federation = holdfast.federate(holdfast.from_arrays(x, y, x[:40], y[:40] + 1), split="iid", clients=3)
    mean = DummyRegressor().fit(x, y).predict(x[:40])
    found = floor_of(federation)
    assert found["rmse"] == pytest.approx(root_mean_squared_error(y[:40] + 1, mean), rel=1e-5)
    assert found["r2"] == pytest.approx(r2_score(y[:40] + 1, mean), rel=1e-4)


def test_tokens():
    y = RNG.choice(5, (50, 8), p=[0.4, 0.3, 0.2, 0.1, 0.0])
    y[:, 6:] = -100
    data = holdfast.DataSet(
        "text", torch.zeros(50, 8, dtype=torch.int64), torch.from_numpy(y), torch.zeros(20, 8, dtype=torch.int64),
        torch.from_numpy(y[:20]), tuple("abcde"), task=NextToken(),
    )  # fmt: skip
    found = floor_of(holdfast.federate(data, split="iid", clients=3))
    counts = np.maximum(np.bincount(y[y >= 0], minlength=5), 1)
    truth = y[:20][y[:20] >= 0]
    entropy = -np.log(counts / counts.sum())[truth].mean()
    assert found["perplexity"] == pytest.approx(math.exp(entropy))
    assert found["accuracy"] == pytest.approx((truth == counts.argmax()).mean())


@pytest.mark.usefixtures("elsewhere")
def test_a_run_prints_and_keeps_it():
    said = good("run", "fedavg", "--rounds", "1", "--clients", "4", "--model", "linear", "--out", "run")
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["floor"].keys() == summary["final_scores"].keys()
    row = next(line for line in said.err.splitlines() if line.startswith("balanced_accuracy"))
    assert row.split() == ["balanced_accuracy", f"{summary['final_scores']['balanced_accuracy']:.4f}", "0.1000"]
    assert "majority class" in said.err


def test_the_table():
    summary = {
        "metric": "r2",
        "final_scores": {"mae": 123456.7, "r2": None, "a" * 60: 0.5},
        "floor": {"mae": 2.0, "r2": 0.0, "a" * 60: 1.0},
    }
    assert score_lines(summary, "mean") == [
        f"score{' ' * 43}  test data    mean",
        f"r2{' ' * 46}          -  0.0000",
        f"mae{' ' * 45}  1.235e+05  2.0000",
        f"{'a' * 45}...     0.5000  1.0000",
    ]
    assert score_lines({"metric": "mae", "final_scores": {"mae": 1.0}, "floor": {}}, "") == [
        "score  test data",
        "mae       1.0000",
    ]
