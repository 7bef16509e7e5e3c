"""Weights of rare classes and labels: FedAvg minimises the weighted objective of the pooled data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor, nn

import holdfast
from helpers.exact_errors import raises_exactly
from helpers.toys import ENGINES
from holdfast.data.loss_weights import balanced_classes, positive_weights, with_loss_weights
from holdfast.flower.node_data import node_federation, server_federation, split_data
from holdfast.method.config import Config
from holdfast.method.method import Method
from holdfast.runs.setup import prepare_simulation

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3)).astype("float32")
CLASSES = RNG.choice(4, 120, p=[0.6, 0.25, 0.1, 0.05])
BINARY = (RNG.random(120) < 0.2).astype(int)
LABELS = (RNG.random((120, 3)) < [0.1, 0.4, 0.7]).astype(int)


def federation(y: np.ndarray, split: str = "dirichlet(0.3)", **settings: Any) -> holdfast.Federation:
    data = holdfast.from_arrays(X, y, X[:20], y[:20], normalise=False)
    return holdfast.federate(data, split=split, clients=4, **settings)


def one_step(fed: holdfast.Federation, engine: str, method: str = "fedavg", **settings: Any) -> Tensor:
    """How far one full-batch step of all clients moves a linear model that starts at zero, with learning rate 1."""
    model = nn.Linear(3, fed.classes)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    result = holdfast.run(
        method, fed, model, engine=engine, rounds=1, steps=1, batch=500, lr=1.0, cohort=4, precision="fp64", **settings
    )
    return torch.cat([result.state_dict()[name].reshape(-1) for name in ("weight", "bias")])


def pooled(y: np.ndarray, loss: Any) -> Tensor:
    """The same step on the pooled data: minus the gradient of a plain mean of sample losses."""
    weight, bias = (torch.zeros(s, dtype=torch.float64, requires_grad=True) for s in ((loss.outputs, 3), loss.outputs))
    loss(torch.from_numpy(X).double() @ weight.T + bias, torch.from_numpy(y)).backward()
    return -torch.cat([weight.grad.reshape(-1), bias.grad])


class WeightedClasses:
    """The mean over samples of w[y] * cross-entropy, written out."""

    def __init__(self, weights: np.ndarray) -> None:
        self.weights, self.outputs = torch.from_numpy(weights), len(weights)

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (self.weights[y] * -torch.log_softmax(outputs, 1)[torch.arange(len(y)), y]).mean()


class WeightedLabels:
    """The mean over samples and labels of the binary cross-entropy, with positives multiplied."""

    def __init__(self, weights: np.ndarray) -> None:
        self.weights, self.outputs = torch.from_numpy(weights), len(weights)

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        q = torch.sigmoid(outputs)
        return -(self.weights * y * q.log() + (1 - y) * (1 - q).log()).mean()


@pytest.mark.parametrize("engine", ENGINES)
def test_fedavg_takes_the_step_of_the_pooled_weighted_objective(engine: str):
    """Although clients hold different classes, some of them only one."""
    weights = compute_class_weight("balanced", classes=np.arange(4), y=CLASSES)
    found = one_step(federation(CLASSES), engine, class_weights="balanced")
    torch.testing.assert_close(found, pooled(CLASSES, WeightedClasses(weights)), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_positive_labels(engine: str):
    balanced = (1 - LABELS).sum(0) / LABELS.sum(0)
    for setting, weights in (("balanced", balanced), (3.0, np.full(3, 3.0))):
        found = one_step(federation(LABELS), engine, pos_weight=setting)
        torch.testing.assert_close(found, pooled(LABELS, WeightedLabels(weights)), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_positive_one_of_two_classes(engine: str):
    for setting, factor in (("balanced", (BINARY == 0).sum() / (BINARY == 1).sum()), (5.0, 5.0)):
        found = one_step(federation(BINARY), engine, pos_weight=setting)
        expected = pooled(BINARY, WeightedClasses(np.array([1.0, factor])))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["fedlc(tau=0)", "fedrs(alpha=1)"])
def test_parts_that_replace_the_loss_keep_the_weights(method: str):
    """Both are FedAvg at these values."""
    fed = federation(CLASSES)
    found = one_step(fed, "vector", method, class_weights="balanced")
    torch.testing.assert_close(found, one_step(fed, "vector", class_weights="balanced"))
    assert (found - one_step(fed, "vector")).abs().max() > 1e-3


@pytest.mark.parametrize("engine", ENGINES)
def test_a_gradient_over_all_samples_is_weighted_too(engine: str):
    """FedAgg asks the clients for it before they train."""
    fed = federation(CLASSES)
    model = nn.Linear(3, 4)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    config = Config(clients=4, engine=engine, precision="fp64", class_weights="balanced")
    simulation = prepare_simulation(config, Method.parse("fedavg"), fed, model)
    ids = np.flatnonzero(fed.deal.sizes)
    rows = simulation.gradients(simulation.broadcast(1, {}), ids, simulation.server.w)
    share = torch.from_numpy(fed.deal.sizes[ids] / len(CLASSES))
    weights = compute_class_weight("balanced", classes=np.arange(4), y=CLASSES)
    torch.testing.assert_close(-(share @ rows), pooled(CLASSES, WeightedClasses(weights)), rtol=1e-9, atol=1e-12)


def test_balanced_weights_are_scikit_learns_and_have_mean_one():
    fed = federation(CLASSES)
    weights = balanced_classes(fed)
    np.testing.assert_allclose(weights, compute_class_weight("balanced", classes=np.arange(4), y=CLASSES))
    assert float(weights[torch.from_numpy(CLASSES)].mean()) == pytest.approx(1)


def test_only_what_clients_train_on_is_counted():
    """Not the public and the validation data."""
    fed = federation(CLASSES, "iid", public=0.2, validation=0.2)
    own = CLASSES[fed.deal.index]
    assert len(own) < 90
    np.testing.assert_allclose(balanced_classes(fed), compute_class_weight("balanced", classes=np.arange(4), y=own))


def test_a_class_or_label_that_does_not_occur():
    x, y = torch.zeros(6, 2), torch.tensor([0, 0, 0, 0, 2, 2])
    data = holdfast.DataSet("gap", x, y, x, y, ("a", "b", "c"))
    assert balanced_classes(holdfast.federate(data, "iid", 2)).tolist() == [6 / 8, 0, 6 / 4]
    labels = np.array([[0, 1, 1], [0, 1, 0], [0, 1, 0], [0, 1, 0]] * 5)
    fed = holdfast.federate(holdfast.from_arrays(X[:20], labels, X[:20], labels), "iid", 2)
    assert positive_weights(fed, "balanced").tolist() == [1, 1, 3]


def test_scores_are_without_weights():
    fed = federation(BINARY)
    result = holdfast.run("fedavg", fed, rounds=1, model="linear", pos_weight=50.0)
    q = torch.from_numpy(result.predict_proba(fed.data.test_x))
    assert result.score.loss == pytest.approx(float(F.nll_loss(q.log(), fed.data.test_y)), rel=1e-5)


def test_with_nine_per_cent_of_positives_balanced_weights_beat_none():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2500, 6)).astype("float32")
    raw = x[:, 0] + x[:, 1] + 1.5 * rng.normal(size=2500)
    y = (raw > np.quantile(raw, 0.91)).astype(int)
    fed = holdfast.federate(holdfast.from_arrays(x, y), split="dirichlet(1.0)", clients=10)
    settings = {"rounds": 10, "epochs": 2, "model": "linear", "metric": "balanced_accuracy"}
    plain = holdfast.run("fedavg", fed, **settings).summary
    balanced = holdfast.run("fedavg", fed, **settings, class_weights="balanced").summary
    assert plain["floor"]["accuracy"] == pytest.approx(0.91, abs=0.005)
    assert abs(plain["final_scores"]["accuracy"] - plain["floor"]["accuracy"]) < 0.02, "no better than the floor"
    assert plain["final_scores"]["recall"] < 0.3
    assert balanced["final"] > plain["final"] + 0.15
    assert balanced["final_scores"]["recall"] > 0.6


def test_what_cannot_be_weighted():
    numbers, balanced, twice = federation(RNG.normal(size=120)), {"class_weights": "balanced"}, {"pos_weight": 2.0}
    one_class = "class_weights needs one class per sample, but"
    positives = "pos_weight needs labels or two classes, but"
    cases = [
        (numbers, balanced, f"{one_class} the task is regression: leave it out"),
        (federation(LABELS), balanced, f"{one_class} the task is multilabel: use --pos-weight balanced"),
        (numbers, twice, f"{positives} the task is regression: leave it out"),
        (federation(CLASSES), twice, f"{positives} arrays has 4 classes: use --class-weights balanced"),
        (federation(BINARY), {"pos_weight": 0.0}, "pos_weight must be a number above 0 or balanced, not 0.0"),
        (
            federation(BINARY),
            balanced | twice,
            "class_weights and pos_weight cannot be used together: set one of them",
        ),
    ]
    for fed, settings, message in cases:
        with raises_exactly(message):
            holdfast.run("fedavg", fed, rounds=1, model="linear", **settings)
    with raises_exactly("ccvr refits the head without weights: leave out class_weights and pos_weight, or ccvr"):
        holdfast.run("ccvr", federation(CLASSES), rounds=1, model="linear", class_weights="balanced")


def test_a_node_has_the_weights_of_all_clients():
    config = Config(clients=5, split="dirichlet(0.3)", class_weights="balanced")
    everybody, node = split_data(config), split_data(config).only([2])
    assert torch.equal(node.weight, everybody.weight)
    assert not torch.allclose(balanced_classes(node), node.weight)


def test_nodes_with_their_own_data_need_a_number():
    config = Config(clients=2, class_weights="balanced")
    message = "balanced weights count the clients' samples, which only the nodes have: "
    with raises_exactly(message + "give --pos-weight a number, or leave it out"):
        server_federation((X, BINARY), None, config, 2)
    config = Config(clients=2, pos_weight=4.0)
    for fed in (server_federation((X, BINARY), None, config, 2), node_federation({1: (X, BINARY)}, config, 2)):
        assert fed.weight.tolist() == [1, 4]


def test_clients_made_on_demand_need_a_number():
    data = holdfast.from_clients(lambda i: (X[i::4], BINARY[i::4]), test=(X, BINARY), clients=4, classes=["no", "yes"])
    fed = holdfast.federate(data)
    why = "balanced needs the samples of every client, but this data makes clients on demand:"
    with raises_exactly(f"class_weights {why} leave it out"):
        with_loss_weights(fed, "balanced", None)
    with raises_exactly(f"pos_weight {why} give a number"):
        with_loss_weights(fed, "none", "balanced")
    summary = holdfast.run("fedavg", fed, "linear", rounds=1, pos_weight=3.0).summary
    assert summary["floor"] == {}
    assert summary["final_scores"]["recall"] is not None


def test_without_settings_there_are_no_weights():
    assert with_loss_weights(federation(CLASSES), "none", None).weight is None
