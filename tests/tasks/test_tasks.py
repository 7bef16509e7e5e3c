"""The four tasks against NumPy: losses, predictions, groups and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.exact_errors import raises_exactly
from holdfast.tasks.multilabel import Multilabel
from holdfast.tasks.next_token import NextToken
from holdfast.tasks.regression import Regression
from holdfast.tasks.task_names import read_task, tasks

DRAW = np.random.default_rng(5)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def test_classification_is_the_cross_entropy_of_every_sample() -> None:
    logits, y, weight = DRAW.normal(size=(9, 4)), DRAW.integers(0, 4, 9), np.array([0.5, 2.0, 0.0, 1.0])
    expected = -log_softmax(logits)[np.arange(9), y]
    task = read_task("classification")
    found = task.loss(torch.tensor(logits), torch.tensor(y))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    found = task.loss(torch.tensor(logits), torch.tensor(y), torch.tensor(weight))
    np.testing.assert_allclose(found.numpy(), weight[y] * expected, rtol=1e-12)
    judged = task.judge(torch.tensor(logits), torch.tensor(y))
    assert judged.hit is not None
    assert judged.hit.tolist() == (logits.argmax(1) == y).tolist()


def test_multilabel_is_the_mean_binary_cross_entropy_over_labels() -> None:
    logits, y, weight = DRAW.normal(size=(9, 3)), DRAW.integers(0, 2, (9, 3)), np.array([1.0, 5.0, 0.5])
    p = 1 / (1 + np.exp(-logits))
    expected = -(weight * y * np.log(p) + (1 - y) * np.log(1 - p)).mean(1)
    found = Multilabel().loss(torch.tensor(logits), torch.tensor(y, dtype=torch.float32), torch.tensor(weight))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    assert Multilabel().predictions(torch.tensor(logits)).tolist() == (logits > 0).astype(int).tolist()
    np.testing.assert_allclose(Multilabel().probabilities(torch.tensor(logits)).numpy(), p, rtol=1e-12)


def test_the_groups_of_multilabel_are_the_combinations_of_labels_the_most_frequent_first() -> None:
    y = np.array([[0, 1], [1, 1], [0, 1], [0, 0]], np.float32)
    groups, names = Multilabel().strata(y)
    assert names is not None
    assert [names[g] for g in groups] == ["1", "0+1", "1", "none"]
    many = (np.arange(64)[:, None] >> np.arange(6)) % 2
    groups, names = Multilabel().strata(many.astype(np.float32))
    assert names is not None
    assert names[-1] == "others"
    assert len(names) == 21 == groups.max() + 1


@given(st.integers(1, 3), st.floats(-1e6, 1e6), st.floats(1e-3, 1e5))
def test_regression_trains_on_standardised_targets_and_answers_in_units(
    targets: int, centre: float, unit: float
) -> None:
    y = torch.tensor(DRAW.normal(size=(50, targets)) * unit + centre)
    known = torch.arange(30)
    task = Regression().standardised(y, known)
    own = y[:30].numpy()
    np.testing.assert_allclose(task.mean, own.mean(0), rtol=1e-9, atol=1e-9 * abs(centre))
    np.testing.assert_allclose(task.std, own.std(0), rtol=1e-6)
    scaled = task.scaled(y)
    np.testing.assert_allclose(scaled[:30].numpy().mean(0), 0, atol=1e-6 * (1 + abs(centre) / unit))
    np.testing.assert_allclose(task.in_units(scaled).numpy(), y.numpy(), rtol=1e-9, atol=1e-6 * unit)
    outputs = torch.zeros(50, targets, dtype=torch.float64)
    np.testing.assert_allclose(task.loss(outputs, scaled).numpy(), (scaled.numpy() ** 2).mean(1), rtol=1e-9)
    again = read_task(str(task))
    assert again == task


def test_a_constant_target_is_shifted_and_not_scaled() -> None:
    task = Regression().standardised(torch.full((4, 1), 7.0), torch.arange(4))
    assert (task.mean, task.std) == ((7.0,), (1.0,))


def test_regression_may_leave_targets_as_they_are() -> None:
    task = read_task("regression(standardise=false)")
    y = torch.tensor([[5.0], [7.0]])
    assert torch.equal(task.standardised(y, torch.arange(2)).scaled(y), y)


def test_the_groups_of_regression_are_tenths() -> None:
    y = DRAW.permutation(1000).astype(np.float32)[:, None]
    groups, names = Regression().strata(y)
    assert names is not None
    assert np.bincount(groups).tolist() == [100] * 10
    assert len(names) == 10
    assert names[0] == "below 99.9"
    assert (np.argsort(y[:, 0]) == np.argsort(y[:, 0] + 0 * groups)).all()
    assert (np.diff(groups[np.argsort(y[:, 0])]) >= 0).all()
    assert Regression().strata(np.full((5, 1), 3.0, np.float32))[0].max() <= 1


def test_many_equal_numbers_are_one_group_and_zero_is_called_so() -> None:
    y = np.concatenate([np.zeros(70), np.arange(1, 31)])[:, None].astype(np.float32)
    task = Regression().standardised(torch.from_numpy(y), torch.arange(100))
    assert float(task.in_units(task.scaled(torch.from_numpy(y)))[0, 0]) != 0
    for groups, names in (Regression().strata(y), task.strata(task.scaled(torch.from_numpy(y)).numpy())):
        assert np.bincount(groups).tolist() == [70, 10, 10, 10]
        assert names is not None
        assert names[0] == "below 0.3"
    signed = np.concatenate([-np.arange(30), np.zeros(40), np.arange(30)])[:, None].astype(np.float32) + 0.25
    task = Regression().standardised(torch.from_numpy(signed - 0.25), torch.arange(100))
    _, names = task.strata(task.scaled(torch.from_numpy(signed - 0.25)).numpy())
    assert names is not None
    assert "0 to 9.2" in " ".join(names)


def test_next_token_is_the_mean_over_positions_that_count() -> None:
    logits, y = DRAW.normal(size=(4, 6, 5)), DRAW.integers(0, 5, (4, 6))
    y[0, 3:] = -100
    y[1] = -100
    there = y != -100
    losses = -np.take_along_axis(log_softmax(logits), np.where(there, y, 0)[..., None], 2)[..., 0] * there
    expected = losses.sum(1) / np.maximum(there.sum(1), 1)
    task, outputs, targets = NextToken(), torch.tensor(logits), torch.tensor(y)
    np.testing.assert_allclose(task.loss(outputs, targets).numpy(), expected, rtol=1e-12)
    judged = task.judge(outputs, targets)
    assert judged.hit is not None
    np.testing.assert_allclose(judged.loss.numpy(), losses[there], rtol=1e-12)
    assert judged.hit.tolist() == (logits.argmax(2) == y)[there].tolist()
    assert task.positions(targets) == (6,)


@pytest.mark.parametrize(
    ("task", "y", "message"),
    [
        ("multilabel", torch.tensor([[0.0, 2.0]]), "y has the value 2, expected 0 or 1 for every label; convert it"),
        ("multilabel", torch.tensor([[0.0, 1.0, 1.0]]),
         "y must be 0 or 1 for each of 2 labels, [n, 2], not torch.float32 [1, 3]; give a column per label"),
        ("regression", torch.tensor([[1.0, math.nan]]), "y has NaN or infinite numbers, first in sample 0; clean it"),
        ("regression", torch.tensor([[1, 2]]),
         "y must be 2 real numbers per sample, not torch.int64 [1, 2]; convert them"),
        ("next-token", torch.tensor([[1, 2], [0, -7]]),
         "y has tokens from -7 to 2, expected 0 to 1, or -100 where there is nothing to predict; fix them"),
        ("next-token", torch.tensor([1]), "y must be tokens [n, length], not torch.int64 [1]; convert them"),
        ("classification", torch.tensor([0, 2]), "y are 0 to 2, expected 0 to 1; number the classes from 0"),
    ],
)  # fmt: skip
def test_targets_that_do_not_fit_are_refused(task: str, y: torch.Tensor, message: str) -> None:
    with raises_exactly(message):
        read_task(task).check("y", y, 2)


def test_a_task_is_found_by_its_name() -> None:
    assert {"classification", "multilabel", "regression", "next-token"} <= set(tasks())
    with raises_exactly("regression has no probabilities: use predict"):
        Regression().probabilities(torch.zeros(1, 1))
