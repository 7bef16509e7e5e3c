"""Which task the targets of own data are for, and what they become."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from helpers.exact_errors import raises_exactly
from holdfast import federate, from_arrays, load
from holdfast.data.targets import with_task
from holdfast.tasks.task_names import read_task

X = np.random.default_rng(0).normal(size=(40, 3))
TOKENS = np.arange(200).reshape(40, 5) % 7


@pytest.mark.parametrize(
    ("x", "y", "task", "shape", "outputs"),
    [
        (X, np.arange(40) % 4, "classification", (), ("0", "1", "2", "3")),
        (X, ["b", "a"] * 20, "classification", (), ("a", "b")),
        (X, X[:, 0], "regression", (1,), ("y",)),
        (X, X[:, :2], "regression", (2,), ("y0", "y1")),
        (X, (X > 0).astype(int), "multilabel", (3,), ("y0", "y1", "y2")),
        (X, X > 0, "multilabel", (3,), ("y0", "y1", "y2")),
        (X, np.arange(40.0), "regression", (1,), ("y",)),
        (TOKENS, (TOKENS + 1) % 7, "next-token", (5,), ("0", "1", "2", "3", "4", "5", "6")),
        (torch.tensor(X), torch.tensor(X[:, 0]), "regression", (1,), ("y",)),
    ],
)
def test_the_task_follows_from_the_targets(
    x: Any, y: Any, task: str, shape: tuple[int, ...], outputs: tuple[str, ...]
) -> None:
    data = from_arrays(x, y)
    assert data.task.name == task
    assert tuple(data.y.shape[1:]) == shape
    assert data.classes == outputs
    assert len(data.y) + len(data.test_y) == 40


def test_a_given_task_decides() -> None:
    assert from_arrays(X, np.arange(40.0) % 2, task="classification").classes == ("0", "1")
    assert from_arrays(X, np.arange(40) % 2, task="regression").y.dtype == torch.float32
    assert from_arrays(X, X[:, 0], classes=["price"]).classes == ("price",)


def test_classes_with_numbers_as_names_can_be_predicted_as_numbers() -> None:
    data = with_task(load("digits"), read_task("regression"))
    assert torch.equal(data.y[:, 0].long(), load("digits").y)
    named = from_arrays(X, ["b", "a"] * 20)
    with raises_exactly(
        "arrays is data for classification, not for regression: leave out task, or prepare its targets"
    ):
        federate(named, "iid", clients=2, task="regression")


def test_targets_are_standardised_by_the_clients_own_samples() -> None:
    y = X[:, 0] * 100 + 1000
    fed = federate(from_arrays(X, y), "iid", clients=3, public=0.2, validation=0.2)
    own = fed.data.y[torch.from_numpy(fed.deal.index)].double()
    assert abs(float(own.mean())) < 1e-6
    assert float(own.std(correction=0)) == pytest.approx(1, abs=1e-6)
    units = fed.data.task.in_units(fed.data.test_y)
    assert sorted(units[:, 0].tolist()) == pytest.approx(sorted(from_arrays(X, y).test_y[:, 0].tolist()), rel=1e-6)


def test_a_label_split_deals_tenths_of_a_number() -> None:
    big = np.random.default_rng(1).normal(size=(2000, 2))
    fed = federate(from_arrays(big, big[:, 0] ** 3), "shards(1)", clients=8)
    y = fed.data.task.in_units(fed.data.y)[:, 0].numpy()
    ranges = [np.ptp(fed.strata[fed.deal.client(i)]) for i in range(8)]
    assert max(ranges) <= 2
    assert len(fed.strata_names) == 10
    assert np.ptp(y) > 0


def test_groups_are_called_by_the_names_of_labels_and_by_ranges() -> None:
    x = np.arange(100.0)[:, None]
    flags = np.concatenate([x > 30, x > 60], 1).astype(int)
    labels = federate(from_arrays(x, flags, task="multilabel", classes=["died", "back"]), "iid", 3)
    assert labels.strata_names == ("died+back", "none", "died")
    stays = federate(from_arrays(x, x[:, 0] / 7, classes=["stay"]), "iid", 3)
    assert stays.strata_names[0].startswith("below ")
    assert stays.strata_names[1].split(" to ")[0] == stays.strata_names[0].removeprefix("below ")
