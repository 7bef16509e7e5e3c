"""Scores of every client on its own test samples, against plain NumPy; and that these samples decide nothing."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import holdfast
from helpers.exact_errors import raises_exactly
from holdfast.data.deal import Deal
from holdfast.data.validation import CLIENT_TEST, hold_out_of_clients
from holdfast.metrics.metric_names import metric_named
from holdfast.training.client_scores import spread_of

SIZES = (30, 12, 21, 5, 1)
SETTINGS: dict[str, Any] = {
    "model": "linear", "cohort": 3, "epochs": 2, "rounds": 3, "batch": 8, "lr": 0.1, "precision": "fp64",
    "device": "cpu",
}  # fmt: skip


def blobs(seed: int = 0, **options: Any) -> holdfast.DataSet:
    """Three classes of points that clients hold in different shares, with a common test set."""
    draw = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(SIZES)), SIZES)
    y = (draw.random(len(groups)) * (1 + groups / 2)).astype(np.int64) % 3
    x = draw.normal(size=(len(y), 4)) + y[:, None] * np.array([1.0, -1.0, 0.5, 0.0])
    return holdfast.from_arrays(x, y, x[:20], y[:20], groups=groups, classes=["a", "b", "c"], **options)


def lines(seed: int = 0) -> holdfast.DataSet:
    draw = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(SIZES)), SIZES)
    x = draw.normal(size=(len(groups), 4))
    y = 3 + 5 * (x @ np.array([1.0, -2.0, 0.5, 0.0])) + groups + 0.3 * draw.normal(size=len(groups))
    return holdfast.from_arrays(x, y, x[:20], y[:20], groups=groups)


def outputs(result: holdfast.Result, x: np.ndarray) -> np.ndarray:
    """What the trained linear model returns, in NumPy."""
    weight, bias = (t.double().numpy() for t in result.state_dict().values())
    mean, std = (np.array(v) for v in (result.facts.mean, result.facts.std))
    return (x - mean) / std @ weight.T + bias


def by_hand(values: list[float], highest_first: bool) -> dict[str, float]:
    worst = sorted(values, reverse=highest_first)[: max(1, math.ceil(len(values) / 10))]
    return {
        "mean": float(np.mean(values)), "worst_tenth": float(np.mean(worst)), "variance": float(np.var(values)),
        "scored": len(values),
    }  # fmt: skip


# -- what is held out ------------------------------------------------------------------------------------------------
def test_every_client_keeps_a_sample_and_holds_out_its_share():
    fed = holdfast.federate(blobs(), client_test=0.2, validation=0.25)
    assert fed.client_test is not None
    assert fed.validation is not None
    assert fed.client_test.sizes.tolist() == [6, 2, 4, 1, 0]
    assert fed.validation.sizes.tolist() == [6, 3, 4, 1, 0]
    assert fed.deal.sizes.tolist() == [18, 7, 13, 3, 1]
    held = [fed.deal, fed.client_test, fed.validation]
    for i in range(5):
        own = np.concatenate([d.client(i) for d in held])
        assert sorted(own.tolist()) == np.flatnonzero(fed.data.groups.numpy() == i).tolist()


def test_what_a_client_holds_out_depends_on_its_own_samples_alone():
    every = Deal(np.arange(60), np.array([0, 20, 50, 60]))
    alone = Deal(np.arange(30), np.array([0, 0, 30, 30]))  # the same samples, on a node that has no other client
    _, held = hold_out_of_clients(every, 0.3, 7, CLIENT_TEST)
    _, own = hold_out_of_clients(alone, 0.3, 7, CLIENT_TEST)
    assert (held.client(1) - 20).tolist() == own.client(1).tolist()
    assert len(own.client(1)) == 9
    _, other = hold_out_of_clients(every, 0.3, 8, CLIENT_TEST)
    assert other.index.tolist() != held.index.tolist()


def test_all_samples_are_equally_likely_to_be_held_out():
    many = Deal(np.arange(40_000), np.arange(0, 40_001, 10))
    _, held = hold_out_of_clients(many, 0.3, 0, CLIENT_TEST)
    places = np.bincount(held.index % 10, minlength=10) / 4000
    assert np.abs(places - 0.3).max() < 0.03  # four standard deviations


def test_clients_of_the_data_are_scored_on_their_own_test_samples():
    data, owner = blobs(), torch.tensor([0, 1, 2, 0, 1] * 4)
    fed = holdfast.federate(replace(data, test_groups=owner), client_test=0.2)
    assert fed.client_test is not None
    assert fed.deal.sizes.tolist() == list(SIZES)  # nothing is held out of training
    for i in range(5):
        expected = data.test_x[owner == i]
        assert torch.equal(fed.data.x[torch.from_numpy(fed.client_test.client(i))], expected)
        assert torch.equal(fed.data.y[torch.from_numpy(fed.client_test.client(i))], data.test_y[owner == i])
    # Under another split the clients are others: their test samples are held out.
    dealt = holdfast.federate(replace(data, test_groups=owner), "iid", 5, client_test=0.2)
    assert dealt.deal.sizes.sum() < sum(SIZES)


def test_a_node_keeps_its_own_clients_test_samples_and_the_server_none():
    fed = holdfast.federate(blobs(), client_test=0.2, validation=0.25)
    node, server = fed.only((0, 3)), fed.only((), server=True)
    assert fed.client_test is not None
    assert node.client_test is not None
    assert server.client_test is not None
    assert server.validation is not None
    assert node.client_test.sizes.tolist() == [6, 0, 0, 1, 0]
    for i in (0, 3):
        rows, here = (torch.from_numpy(d.client(i)) for d in (fed.client_test, node.client_test))
        assert torch.equal(fed.data.x[rows], node.data.x[here])
    assert server.client_test.sizes.tolist() == [0] * 5
    assert server.validation.sizes.tolist() == fed.validation.sizes.tolist()  # type: ignore[union-attr]


# -- the scores ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("engine", ["loop", "vector"])
def test_accuracy_of_every_client_against_numpy(engine: str):
    fed = holdfast.federate(blobs(), client_test=0.2)
    result = holdfast.run("fedavg", fed, engine=engine, **SETTINGS)
    assert fed.client_test is not None
    expected = {}
    for i in range(4):
        rows = fed.client_test.client(i)
        right = outputs(result, fed.data.x.double().numpy()[rows]).argmax(1) == fed.data.y.numpy()[rows]
        expected[str(i)] = right.mean()
    scores = result.client_scores()
    assert {name: row.score for name, row in scores.items()} == pytest.approx(expected)
    assert [row.samples for row in scores.values()] == [6, 2, 4, 1]  # the fifth client has none
    assert result.history[-1].clients == pytest.approx(by_hand(list(expected.values()), False))
    assert result.summary["client_scores"] == pytest.approx(result.history[-1].clients)
    assert all(r.clients for r in result.history)


@pytest.mark.parametrize("engine", ["loop", "vector"])
def test_rmse_of_every_client_is_in_the_unit_of_the_data(engine: str):
    data = lines()
    fed = holdfast.federate(data, client_test=0.3)
    result = holdfast.run("fedavg", fed, engine=engine, **SETTINGS)
    assert fed.client_test is not None
    mean, std = (np.array(v) for v in fed.data.task.scale)
    expected = []
    for i in range(4):
        rows = fed.client_test.client(i)
        found = outputs(result, data.x.double().numpy()[rows]) * std + mean
        expected.append(math.sqrt(np.mean((found - data.y.double().numpy()[rows]) ** 2)))
    assert [row.score for row in result.client_scores().values()] == pytest.approx(expected, rel=1e-5)
    assert result.history[-1].clients == pytest.approx(by_hand(expected, True), rel=1e-5)


def test_the_tokens_of_a_client_are_its_own():
    draw = np.random.default_rng(0)
    x = draw.integers(0, 5, (24, 6))
    y = np.roll(x, -1, 1)
    y[:, -1] = -100
    y[::3, 2:] = -100  # texts of different lengths
    groups = np.repeat([0, 1, 2], 8)
    data = holdfast.from_arrays(x, y, x[:4], y[:4], groups=groups, task="next-token", classes=list("abcde"))

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(5, 4), nn.Linear(4, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.embed(x))

    fed = holdfast.federate(data, client_test=0.5)
    torch.manual_seed(0)
    result = holdfast.run("fedavg", fed, Network(), **{k: v for k, v in SETTINGS.items() if k != "model"})
    assert fed.client_test is not None
    for i in range(3):
        rows = fed.client_test.client(i)
        with torch.no_grad():
            found = result.model(fed.data.x[rows]).double().log_softmax(-1).numpy()
        target = fed.data.y.numpy()[rows]
        logs = [found[s, p, target[s, p]] for s in range(len(rows)) for p in range(6) if target[s, p] != -100]
        assert result.client_scores()[str(i)].score == pytest.approx(math.exp(-np.mean(logs)))


def test_the_worst_tenth_is_rounded_up_and_follows_the_direction_of_the_metric():
    values = [0.1 * k for k in range(21)]
    accuracy, loss = metric_named("accuracy"), metric_named("loss")
    assert spread_of(values, accuracy)["worst_tenth"] == pytest.approx((0.0 + 0.1 + 0.2) / 3)
    assert spread_of(values, loss)["worst_tenth"] == pytest.approx((2.0 + 1.9 + 1.8) / 3)
    assert spread_of([0.5, 0.25], accuracy) == {
        "mean": 0.375, "worst_tenth": 0.25, "variance": 0.015625, "scored": 2,
    }  # fmt: skip
    assert spread_of([0.5] * 70, accuracy)["worst_tenth"] == 0.5
    seven = [float(k) for k in range(70)]
    assert spread_of(seven, accuracy)["worst_tenth"] == 3.0  # the mean of 0 to 6
    assert spread_of([0.5, math.nan, 0.25], accuracy)["scored"] == 2
    assert math.isnan(spread_of([math.nan], accuracy)["mean"])


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))))


@pytest.mark.parametrize("engine", ["loop", "vector"])
def test_local_layers_are_scored_with_each_clients_own_model(engine: str):
    """Under ``batchnorm=local`` the score of a run is the mean of the clients' own, on their own samples."""
    fed, trainers = holdfast.federate(blobs(), client_test=0.2, validation=0.25), []
    torch.manual_seed(0)
    settings = {k: v for k, v in SETTINGS.items() if k != "model"} | {"batchnorm": "local", "cohort": 5}
    result = holdfast.run(
        "fedavg", fed, Normed(), engine=engine, on_start=lambda t, done: trainers.append(t), **settings
    )
    assert fed.client_test is not None
    assert fed.validation is not None
    module, trainer = Normed().double(), trainers[0]
    mean, std = (torch.tensor(v, dtype=torch.float64) for v in (fed.data.mean, fed.data.std))
    scores, judged, losses = [], [], []
    for i in range(4):
        kept = trainer.clients.rows[i]["batchnorm"]
        module.load_state_dict(trainer.net.state_dict(trainer.server.served()))
        with torch.no_grad():
            (module.norm.weight.copy_(kept["own"][:6]), module.norm.bias.copy_(kept["own"][6:]))
        running = kept["running"]
        (module.norm.running_mean.copy_(running[:6]), module.norm.running_var.copy_(running[6:]))
        assert not torch.equal(module.norm.running_mean, Normed().norm.running_mean.double())
        module.eval()
        for held, found in ((fed.client_test, scores), (fed.validation, judged)):
            rows = held.client(i)
            with torch.no_grad():
                logits = module((fed.data.x[rows].double() - mean) / std)
            found.append(logits.argmax(1) == fed.data.y[rows])
            losses += [float(nn.functional.cross_entropy(logits, fed.data.y[rows]))] if found is scores else []
    assert result.summary["final"] == pytest.approx(np.mean([h.double().mean() for h in scores]))
    assert result.history[-1].test["loss"] == pytest.approx(np.mean(losses))
    assert result.history[-1].clients["mean"] == pytest.approx(result.summary["final"])
    assert result.history[-1].validation["accuracy"] == pytest.approx(float(torch.cat(judged).double().mean()))


def test_personal_copies_are_scored_on_the_same_samples():
    """One full-batch step of softmax regression at every client, in NumPy."""
    fed = holdfast.federate(blobs(), client_test=0.2)
    settings = SETTINGS | {"batch": 100, "rounds": 1, "personal": 1, "personal_what": "all"}
    result = holdfast.run("fedavg", fed, engine="loop", **settings)
    assert fed.client_test is not None
    weight, bias = (t.double().numpy() for t in result.state_dict().values())
    mean, std = (np.array(v) for v in (result.facts.mean, result.facts.std))
    x, y, expected = (fed.data.x.double().numpy() - mean) / std, fed.data.y.numpy(), []
    for i in range(4):
        own, held = fed.deal.client(i), fed.client_test.client(i)
        logits = x[own] @ weight.T + bias
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        p[np.arange(len(own)), y[own]] -= 1
        w, b = weight - 0.1 * p.T @ x[own] / len(own), bias - 0.1 * p.mean(0)
        expected.append(float(np.mean((x[held] @ w.T + b).argmax(1) == y[held])))
    assert [row.personal for row in result.client_scores().values()] == pytest.approx(expected)
    assert result.summary["personal_client_scores"] == pytest.approx(by_hand(expected, False))


# -- they decide nothing ---------------------------------------------------------------------------------------------
def test_labels_of_test_samples_change_no_weight():
    fed = holdfast.federate(blobs(), client_test=0.2, validation=0.25)
    assert fed.client_test is not None
    y = fed.data.y.clone()
    rows = torch.from_numpy(fed.client_test.index)
    y[rows] = (y[rows] + 1) % 3
    other = replace(fed, data=replace(fed.data, y=y))
    settings = SETTINGS | {"rounds": 12, "stop_after": 2}
    a, b = (holdfast.run("scaffold", f, engine="loop", **settings) for f in (fed, other))
    assert torch.equal(a.w, b.w)
    assert [r.cohort for r in a.history] == [r.cohort for r in b.history]
    assert [r.validation for r in a.history] == [r.validation for r in b.history]
    for name in ("best_round", "stopped_early", "rounds", "final", "best"):
        assert a.summary[name] == b.summary[name]
    assert a.history[-1].clients != b.history[-1].clients


def test_scoring_clients_that_the_data_brings_changes_no_weight():
    data = replace(blobs(), test_groups=torch.tensor([0, 1, 2, 0, 1] * 4))
    a, b = (holdfast.run("fedavg", holdfast.federate(data, client_test=c), **SETTINGS) for c in (0.0, 0.2))
    assert torch.equal(a.w, b.w)
    assert [r.test for r in a.history] == [r.test for r in b.history]


# -- on disk ---------------------------------------------------------------------------------------------------------
def test_a_resumed_run_has_the_same_scores(tmp_path: Path):
    settings = {k: v for k, v in SETTINGS.items() if k != "cohort"} | {
        "data": "digits", "split": "dirichlet(0.5)", "clients": 4, "client_eval": True, "client_test": 0.1,
    }  # fmt: skip
    whole = holdfast.run("scaffold", out=tmp_path / "whole", **settings)
    asked = iter([True])
    holdfast.run("scaffold", out=tmp_path / "parts", stop=lambda: next(asked), **settings)
    assert not (tmp_path / "parts" / "clients.json").exists()
    parts = holdfast.run(out=tmp_path / "parts", resume=True)
    assert parts.client_scores() == whole.client_scores()
    assert [r.clients for r in parts.history] == [r.clients for r in whole.history]
    loaded = holdfast.load_run(tmp_path / "parts")
    assert loaded.client_scores() == whole.client_scores()
    assert loaded.history[-1].clients == whole.history[-1].clients
    assert loaded.config.client_eval
    assert loaded.config.client_test == 0.1
    table = json.loads((tmp_path / "parts" / "clients.json").read_text())
    assert table["metric"] == "accuracy"
    assert len(table["rows"]) == 4
    again = holdfast.run(out=tmp_path / "parts", resume=True, rounds=4)
    assert len(again.history) == 4
    assert holdfast.load_run(tmp_path / "parts").client_scores() == again.client_scores()


def test_the_config_says_what_a_federation_holds_out(tmp_path: Path):
    fed = holdfast.federate(blobs(), client_test=0.25, validation=0.1)
    config = holdfast.run("fedavg", fed, out=tmp_path / "run", **SETTINGS).config
    assert (config.client_eval, config.client_test, config.validation) == (True, 0.25, 0.1)


# -- what is refused -------------------------------------------------------------------------------------------------
def test_mistakes_are_named():
    with raises_exactly("client_test must be a fraction in (0, 1), not 1.5; use one such as 0.2"):
        holdfast.federate(blobs(), client_test=1.5)
    with raises_exactly("client_test 0.01 of every client is not a single sample; use a larger fraction"):
        holdfast.federate(blobs(), client_test=0.01)
    with raises_exactly(
        "validation 0.01 of every client is not a single sample; use a larger fraction, or validation_from pool"
    ):
        holdfast.federate(blobs(), validation=0.01)
    with raises_exactly(
        "the test samples of arrays belong to clients 0 to 7, but there are 5, numbered from 0; fix test_groups"
    ):
        holdfast.federate(replace(blobs(), test_groups=torch.tensor([0, 7] * 10)), client_test=0.2)
    with raises_exactly("this run has no scores of clients: run it with client_eval, up to its last round"):
        holdfast.run("fedavg", holdfast.federate(blobs()), **SETTINGS).client_scores()
    with raises_exactly(
        "fine-tuned copies are scored by classes, which regression does not have, or on clients' own test samples: add "
        "--client-eval"
    ):
        holdfast.run("fedavg", holdfast.federate(lines()), personal=1, **SETTINGS)
    settings = {k: v for k, v in SETTINGS.items() if k != "model"} | {"batchnorm": "local"}
    with raises_exactly(
        "with batchnorm local every client has its own model, so that no client can be scored on a pool: use "
        "--validation-from clients"
    ):
        holdfast.run("fedavg", holdfast.federate(blobs(), validation=0.2, validation_from="pool"), Normed(), **settings)


def test_local_layers_of_a_task_without_classes_need_clients_test_samples():
    class Line(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.last = nn.BatchNorm1d(4), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.norm(x))

    settings = {k: v for k, v in SETTINGS.items() if k != "model"} | {"batchnorm": "local"}
    with raises_exactly("with batchnorm local, rmse is scored on clients' own test samples: add --client-eval"):
        holdfast.run("fedavg", holdfast.federate(lines()), Line(), **settings)
    result = holdfast.run("fedavg", holdfast.federate(lines(), client_test=0.2), Line(), **settings)
    assert result.summary["final"] == pytest.approx(result.history[-1].clients["mean"])
