"""Every metric against scikit-learn or a few lines of NumPy, on random data with ties, missing classes and k = 2."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from holdfast.metrics.metric_names import metrics, read_metric
from holdfast.metrics.predictions import Predictions
from holdfast.tasks.classification import Classification
from holdfast.tasks.multilabel import Multilabel
from holdfast.tasks.next_token import NextToken
from holdfast.tasks.regression import Regression
from holdfast.tasks.task import Task


def judged(task: Task, outputs: np.ndarray, y: np.ndarray) -> Predictions:
    return Predictions.of(task, [task.judge(torch.from_numpy(outputs), torch.from_numpy(y))])


def score(name: str, p: Predictions) -> float:
    return read_metric(name, p.task).score(p)


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@st.composite
def classified(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of 2 to 12 classes; half of the draws have many ties, most lack some class."""
    k, n = draw(st.integers(2, 12)), draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    logits = rng.normal(size=(n, k)) * 2
    if draw(st.booleans()):
        logits = logits.round()
    present = rng.permutation(k)[: draw(st.integers(1, k))]
    return logits, rng.choice(present, n)


@given(classified())
def test_scores_of_classes(found):
    logits, y = found
    k, p, predicted = logits.shape[1], judged(Classification(), logits, y), logits.argmax(1)
    present, q = np.unique(y), softmax(logits)
    assert score("accuracy", p) == pytest.approx(sk.accuracy_score(y, predicted))
    assert score("log_loss", p) == pytest.approx(sk.log_loss(y, q, labels=np.arange(k)))
    assert score("loss", p) == pytest.approx(score("log_loss", p))
    recalls = [(predicted[y == c] == c).mean() for c in present]
    assert score("balanced_accuracy", p) == pytest.approx(np.mean(recalls))
    f1 = [2 * ((predicted == c) & (y == c)).sum() / ((predicted == c).sum() + (y == c).sum()) for c in present]
    assert score("macro_f1", p) == pytest.approx(np.mean(f1))
    right = [((predicted == c) & (y == c)).sum() / max(1, (predicted == c).sum()) for c in present]
    found = {name: score(name, p) for name in ("recall", "precision")}
    if k > 2:
        assert found["recall"] == pytest.approx(np.mean(recalls))
        assert found["precision"] == pytest.approx(np.mean(right))
    elif (y == 1).any():
        assert found["recall"] == pytest.approx(sk.recall_score(y, predicted))
        assert found["precision"] == pytest.approx(sk.precision_score(y, predicted, zero_division=0))
    else:
        assert all(map(math.isnan, found.values()))


@given(classified())
def test_scikit_learn_agrees_where_every_class_occurs(found):
    logits, y = found
    k = logits.shape[1]
    logits, y = np.concatenate([logits, logits[:1].repeat(k, 0)]), np.concatenate([y, np.arange(k)])
    p, predicted, q = judged(Classification(), logits, y), logits.argmax(1), softmax(logits)
    assert score("balanced_accuracy", p) == pytest.approx(sk.balanced_accuracy_score(y, predicted))
    assert score("macro_f1", p) == pytest.approx(sk.f1_score(y, predicted, average="macro", zero_division=0))
    area = sk.roc_auc_score(y, q[:, 1]) if k == 2 else sk.roc_auc_score(y, q, multi_class="ovr", average="macro")
    assert score("auroc", p) == pytest.approx(area)


def pairs_in_order(scores: np.ndarray, positive: np.ndarray) -> float:
    """The share of pairs of a positive and a negative in which the positive has the higher score; ties are half."""
    a, b = scores[positive][:, None], scores[~positive][None]
    return float(((a > b) + 0.5 * (a == b)).mean())


@given(classified())
def test_auroc_is_the_share_of_ordered_pairs_over_the_classes_present(found):
    logits, y = found
    p, present = judged(Classification(), logits, y), np.unique(y)
    q = p.probabilities.numpy()  # the very numbers: whether equal logits in another order tie is a matter of rounding
    if len(present) < 2:
        expected = math.nan
    elif logits.shape[1] == 2:
        expected = pairs_in_order(q[:, 1], y == 1)
    else:
        expected = np.mean([pairs_in_order(q[:, c], y == c) for c in present])
    assert score("auroc", p) == pytest.approx(expected, nan_ok=True)


@given(classified(), st.integers(1, 20))
def test_calibration_error_by_its_equation(found, bins):
    logits, y = found
    q = softmax(logits)
    confidence, right = q.max(1).astype(np.float32), q.argmax(1) == y
    edges = torch.linspace(0, 1, bins + 1).numpy()
    expected = 0.0
    for low, high in pairwise(edges):
        inside = (confidence >= low) & ((confidence < high) | (high == 1))
        if inside.any():
            expected += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    p = judged(Classification(), logits, y)
    assert score(f"calibration_error(bins={bins})", p) == pytest.approx(expected, abs=1e-5)


def test_a_model_that_is_certain_falls_in_the_last_bin():
    """Half of the certain answers are wrong: 0.5 of error, with those of 0.99 in the same bin."""
    logits = np.array([[60.0, 0], [60.0, 0], [math.log(99), 0], [math.log(99), 0]])
    y = np.array([0, 1, 0, 0])
    found = score("calibration_error(bins=2)", judged(Classification(), logits, y))
    assert found == pytest.approx(abs(0.75 - (1 + 1 + 0.99 + 0.99) / 4), abs=1e-6)


@st.composite
def labelled(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Logits and 0/1 labels; some labels may be on nobody, or on everybody."""
    k, n = draw(st.integers(2, 6)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    logits = rng.normal(size=(n, k)).round(draw(st.integers(0, 6)))
    y = (rng.random((n, k)) < rng.choice([0.0, 0.2, 0.5, 1.0], k)).astype(np.float32)
    return logits, y


@given(labelled())
def test_scores_of_labels(found):
    logits, y = found
    p, predicted, q = judged(Multilabel(), logits, y), logits > 0, 1 / (1 + np.exp(-logits))
    truth = y > 0
    assert score("accuracy", p) == pytest.approx((predicted == truth).mean())
    assert score("subset_accuracy", p) == pytest.approx(sk.accuracy_score(truth, predicted))
    by_hand = -(truth * np.log(q) + ~truth * np.log(1 - q)).mean()
    assert score("log_loss", p) == pytest.approx(by_hand)
    assert score("loss", p) == pytest.approx(by_hand, rel=1e-6)
    for name in ("recall", "precision", "macro_f1"):
        single = getattr(sk, f"{name.removeprefix('macro_')}_score")
        each = [single(truth[:, c], predicted[:, c], zero_division=0) for c in np.flatnonzero(truth.any(0))]
        assert score(name, p) == pytest.approx(np.mean(each) if each else math.nan, nan_ok=True)
    mixed = np.flatnonzero(truth.any(0) & ~truth.all(0))
    areas = [pairs_in_order(q[:, c], truth[:, c]) for c in mixed]
    assert score("auroc", p) == pytest.approx(np.mean(areas) if areas else math.nan, nan_ok=True)


@given(st.integers(1, 3), st.integers(2, 40), st.integers(0, 10**6), st.sampled_from([1e-3, 1.0, 1e5]))
def test_scores_of_numbers(targets, n, seed, scale):
    rng = np.random.default_rng(seed)
    y, predicted = scale * rng.normal(size=(2, n, targets)) + 3 * scale
    p = judged(Regression(), predicted, y)
    assert score("rmse", p) == pytest.approx(sk.root_mean_squared_error(y, predicted))
    assert score("mae", p) == pytest.approx(sk.mean_absolute_error(y, predicted))
    assert score("r2", p) == pytest.approx(sk.r2_score(y, predicted))


def test_r2_leaves_out_a_target_that_does_not_vary():
    y = np.array([[1.0, 5.0], [2.0, 5.0], [4.0, 5.0]])
    predicted = np.array([[1.0, 9.0], [2.5, 9.0], [3.5, 9.0]])
    p = judged(Regression(), predicted, y)
    assert score("r2", p) == pytest.approx(sk.r2_score(y[:, 0], predicted[:, 0]))
    assert math.isnan(score("r2", judged(Regression(), predicted[:, 1:], y[:, 1:])))
    assert math.isnan(score("r2", judged(Regression(), predicted[:1], y[:1])))


def test_scores_of_tokens():
    """Two texts of three and one tokens; the padding does not count."""
    outputs = np.log(np.array([[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]], [[0.4, 0.3, 0.3]] * 3]))
    y = np.array([[0, 0, 2], [1, -100, -100]])
    p = judged(NextToken(), outputs, y)
    mean = -np.log([0.5, 0.1, 0.6, 0.3]).mean()
    assert score("perplexity", p) == pytest.approx(np.exp(mean))
    assert score("loss", p) == pytest.approx(mean)
    assert score("accuracy", p) == 0.5


TASKS = {"class": Classification(), "labels": Multilabel(), "numbers": Regression(), "tokens": NextToken()}


@pytest.mark.parametrize(("name", "targets"), [(n, t) for n, c in metrics().items() for t in c.tasks if t != "tokens"])
@pytest.mark.parametrize("odd", [math.nan, math.inf, 1e300])
def test_odd_outputs_never_end_a_run(name: str, targets: str, odd: float):
    """NaN, infinite and huge outputs: a number, or NaN; never an error or a warning."""
    outputs = np.array([[odd, 1.0], [0.5, 0.0], [0.0, 2.0]])
    y = np.array([0, 1, 1]) if targets == "class" else np.array([[0.0, 1], [1, 1], [1, 0]])
    assert isinstance(score(name, judged(TASKS[targets], outputs, y)), float)


@pytest.mark.parametrize(("name", "targets"), [(n, t) for n, c in metrics().items() for t in c.tasks if t != "tokens"])
def test_no_items_have_no_score(name: str, targets: str):
    y = np.zeros(0, np.int64) if targets == "class" else np.zeros((0, 2))
    assert math.isnan(score(name, judged(TASKS[targets], np.zeros((0, 2)), y)))


def test_one_class_alone():
    """A data set whose every sample is of the same, only class: what is defined is perfect."""
    p = judged(Classification(), np.zeros((3, 1)), np.zeros(3, np.int64))
    found = {name: score(name, p) for name in metrics() if "class" in metrics()[name].tasks}
    undefined = {name for name, value in found.items() if math.isnan(value)}
    assert undefined == {"auroc", "calibration_error"}
    assert found["accuracy"] == found["balanced_accuracy"] == found["recall"] == 1
