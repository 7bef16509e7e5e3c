"""The drift diagnostics: cases by hand, references in numpy, both engines, and nothing of the training touched."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import holdfast
from helpers.places import ROOT
from helpers.toys import ENGINES, FEDERATION, SETTINGS, Poison, Still, mlp
from holdfast.method.part import Round
from holdfast.models.net import Net
from holdfast.runs.history import read_history, to_line
from holdfast.theory.recorder import Recorder, recorded
from holdfast.theory.two_clients import bound, starts
from holdfast.training.drift import LISTED, MEASURES, SAMPLES, measure, probe
from holdfast.training.round_record import RoundRecord
from holdfast.training.simulation import Simulation

NAMES = [m.name for m in MEASURES]
F64 = torch.float64


def looked(method: str = "fedavg", **settings: object) -> list[RoundRecord]:
    return holdfast.run(method, FEDERATION, mlp(), drift=True, **(SETTINGS | settings)).history


def of(deltas: list[list[float]], w: list[float], module: nn.Module, shape: tuple[int, ...]) -> dict[str, float]:
    """The figures of a round with these deltas, on the ragged federation's samples cut to the shape."""
    net = Net(module, shape, 3, precision="fp64")
    rows = torch.tensor(deltas, dtype=F64)
    one = torch.ones(len(rows), dtype=torch.int64)
    r = Round(torch.tensor(w, dtype=F64), rows, one, one, one, one / len(rows), torch.tensor(1.0), 1.0, 4, net)
    d = FEDERATION.data
    data = replace(d, x=d.x[:, : shape[0]], test_x=d.test_x[:, : shape[0]])
    counts = torch.ones(len(rows), 3, dtype=torch.int64)
    return measure(r, r.w, counts, replace(FEDERATION, data=data, dtype=F64))


def linear() -> nn.Module:
    return nn.Linear(1, 3, bias=False)


# -- by hand ---------------------------------------------------------------------------------------------------------
def test_two_orthogonal_updates() -> None:
    found = of([[3, 0, 0], [0, 4, 0]], [0, 0, 2], linear(), (1,))
    assert found["cosine"] == pytest.approx(0, abs=1e-12)
    assert found["norm_ratio"] == pytest.approx(7 / 5)
    assert found["distance"] == pytest.approx(3.5 / 2)
    assert found["contraction"] == pytest.approx(1)  # all of the model is its head
    assert found["discrepancy"] == pytest.approx(0.5**0.5)  # 2 * (1.5^2 + 2^2) of 3^2 + 4^2
    assert "neuron_drift" not in found  # nobody lacks a class


def test_equal_and_opposite_updates() -> None:
    same = of([[1, 2, 2], [2, 4, 4]], [1, 0, 0], linear(), (1,))
    assert (same["cosine"], same["norm_ratio"]) == pytest.approx((1, 1))
    opposite = of([[1, 2, 2], [-1, -2, -2]], [1, 0, 0], linear(), (1,))
    assert (opposite["cosine"], opposite["discrepancy"]) == pytest.approx((-1, 1))
    assert "norm_ratio" not in opposite  # nothing is left to divide by


def test_clients_that_stay_have_no_direction() -> None:
    found = of([[0, 0, 0], [0, 0, 0]], [1, 0, 0], linear(), (1,))
    assert found["distance"] == 0
    assert not {"cosine", "norm_ratio", "contraction", "discrepancy"} & found.keys()
    alone = of([[0, 0, 0], [1, 0, 0]], [1, 0, 0], linear(), (1,))
    assert "cosine" not in alone
    assert alone["norm_ratio"] == 1


def test_contraction_is_fedbugs_bound_on_fedbugs_model() -> None:
    """f(x) = x [a, b]^T v: from (a, b, v) client 1 moves along (v, 0, a), client 2 along (0, v, b)."""
    net = Net(nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 1, bias=False)), (2,), 1, precision="fp64")
    x, y = torch.eye(2, dtype=F64), torch.zeros(2, dtype=torch.int64)
    federation = holdfast.federate(holdfast.DataSet("two", x, y, x, y, ("only",)), "iid", clients=2)
    federation = replace(federation, dtype=F64)
    for model in starts(8):
        a, b, v = model
        zero = torch.zeros_like(a)
        deltas = 0.01 * torch.stack([torch.stack([v, zero, a]), torch.stack([zero, v, b])])
        one = torch.ones(2, dtype=torch.int64)
        r = Round(model, deltas, one, one, one, one / 2, torch.tensor(1.0), 1.0, 2, net)
        found = measure(r, model, torch.ones(2, 1, dtype=torch.int64), federation)
        assert found["contraction"] == pytest.approx(float(bound(model)), rel=1e-12)


# -- references in numpy ---------------------------------------------------------------------------------------------
def layers(w: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
    """The outputs of the three layers of the toys' network, before their activation."""
    sizes = [(5, 3), (5,), (4, 5), (4,), (3, 4), (3,)]
    pieces = np.split(w, np.cumsum([np.prod(s) for s in sizes])[:-1])
    w1, b1, w2, b2, w3, b3 = (p.reshape(s) for p, s in zip(pieces, sizes, strict=True))
    one = x @ w1.T + b1
    two = np.tanh(one) @ w2.T + b2
    return [one, two, np.tanh(two) @ w3.T + b3]


def hidden(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.maximum(np.concatenate(layers(w, x)[:2], axis=1), 0)


def reference(
    w: np.ndarray, after: np.ndarray, deltas: np.ndarray, labels: list[np.ndarray], x: np.ndarray, y: np.ndarray
) -> dict[str, float]:
    """Every figure from its definition, with plain loops."""
    norm, clients = np.linalg.norm, range(len(deltas))
    pairs = [(i, j) for i in clients for j in clients if i < j]
    found = {
        "cosine": np.mean([deltas[i] @ deltas[j] / norm(deltas[i]) / norm(deltas[j]) for i, j in pairs]),
        "norm_ratio": sum(norm(d) for d in deltas) / norm(sum(deltas)),
        "distance": np.mean([norm((w + d) - w) / norm(w) for d in deltas]),
        "contraction": np.mean([(1 + norm(d[44:]) ** 2 / norm(d) ** 2) / 2 for d in deltas]),
    }
    shares = []
    for block in (slice(0, 20), slice(20, 44), slice(44, 59)):
        mean = np.mean([d[block] for d in deltas], axis=0)
        shares.append(
            (sum(norm(d[block] - mean) ** 2 for d in deltas) / sum(norm(d[block]) ** 2 for d in deltas)) ** 0.5
        )
    found["discrepancy"] = np.mean(shares)
    few = [np.flatnonzero(y == c)[:SAMPLES] for c in range(3)]
    before = [hidden(w, x[rows]).mean(0) for rows in few]
    falls = []
    for delta, own in zip(deltas, labels, strict=True):
        for c in set(range(3)) - set(own.tolist()):
            bound = [m for m in range(9) if before[c][m] > 0 and max(b[m] for b in before) == before[c][m]]
            now = hidden(w + delta, x[few[c]]).mean(0)
            if bound:
                falls.append(sum(before[c][m] - now[m] for m in bound) / sum(before[c][m] for m in bound))
    if falls:
        found["neuron_drift"] = np.mean(falls)
    norms = [np.mean([norm(f) for f in np.tanh(layers(after, x[rows])[1])]) for rows in few]
    found["feature_norm_spread"] = np.std(norms) / np.mean(norms)
    return found | {f"feature_norm_{c}": n for c, n in enumerate(norms)}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_figure_is_its_definition(engine: str) -> None:
    before: list[np.ndarray] = []
    simulations: list[Simulation] = []
    rounds: list[RoundRecord] = []

    def start(simulation: Simulation, done: int) -> None:
        simulations.append(simulation)
        before.append(simulation.server.w.numpy().copy())

    def check(record: RoundRecord) -> None:
        kept, w = recorded(simulations[0]), simulations[0].server.w.numpy().copy()
        labels = [FEDERATION.data.y[FEDERATION.deal.client(int(i))].numpy() for i in kept["ids"]]
        data = FEDERATION.data
        expected = reference(before[-1], w, kept["deltas"].numpy(), labels, data.test_x.numpy(), data.test_y.numpy())
        assert record.drift == pytest.approx(expected, rel=1e-9, abs=1e-12)
        before.append(w)
        rounds.append(record)

    method = holdfast.Method.parse("fedbug(0.4)") + Recorder()
    holdfast.run(
        method, FEDERATION, mlp(), drift=True, engine=engine, on_start=start, on_round=check,
        **(SETTINGS | {"rounds": 5, "cohort": 4}),
    )  # fmt: skip
    assert len(rounds) == 5
    assert all(set(NAMES) <= r.drift.keys() for r in rounds)  # client 0 lacks a class


def test_the_samples_are_the_first_of_each_class() -> None:
    federation = holdfast.federate(holdfast.load("digits"), clients=4)
    x, y = probe(federation)
    test_y = federation.data.test_y
    rows = torch.cat([torch.nonzero(test_y == c)[:SAMPLES, 0] for c in range(10)])
    assert torch.equal(y, test_y[rows])
    assert torch.equal(x, federation.inputs(federation.data.test_x[rows]))


# -- laws ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["fedavg", "fedmrur", "scaffold+fedbug(0.4)", "fnr(p=0.5)", "fednlr"])
def test_both_engines_agree(method: str) -> None:
    loop, vector = (looked(method, engine=engine, cohort=4) for engine in ENGINES)
    for a, b in zip(loop, vector, strict=True):
        assert set(NAMES) <= a.drift.keys()
        assert a.drift == pytest.approx(b.drift, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("method", ["fedavg", "fedmrur", "fnr(p=0.5)"])
def test_looking_changes_nothing(method: str) -> None:
    settings = SETTINGS | {"cohort": 4}
    plain = holdfast.run(method, FEDERATION, mlp(), **settings)
    watched = holdfast.run(method, FEDERATION, mlp(), drift=True, **settings)
    assert torch.equal(plain.w, watched.w)
    for a, b in zip(plain.history, watched.history, strict=True):
        assert not a.drift
        assert b.drift
        assert replace(a, seconds=0) == replace(b, seconds=0, drift={})


def test_only_evaluated_rounds_are_looked_at() -> None:
    history = looked(rounds=5, eval_every=2)
    assert [bool(r.drift) for r in history] == [r.test_accuracy is not None for r in history]
    assert [bool(r.drift) for r in history] == [False, True, False, True, True]


def test_an_update_that_is_not_finite_is_not_looked_at() -> None:
    poisoned = looked(holdfast.Method((Poison(),)), cohort=4)
    for record in poisoned:
        assert record.skipped == [1]
        assert np.isfinite(list(record.drift.values())).all()


def test_a_model_at_rest() -> None:
    (first, second, _) = looked(holdfast.Method((Still(1),)), cohort=4)
    assert set(NAMES) <= first.drift.keys()
    assert second.drift["distance"] == 0
    assert second.drift["neuron_drift"] == 0
    assert "cosine" not in second.drift


def test_many_classes_are_not_listed() -> None:
    g = torch.Generator().manual_seed(0)
    for classes in (LISTED, LISTED + 1):
        y = torch.arange(4 * classes) % classes
        data = holdfast.from_arrays(torch.randn(len(y), 3, generator=g), y)
        history = holdfast.run(
            "fedavg", holdfast.federate(data, "iid", clients=2), nn.Linear(3, classes), drift=True, rounds=1
        ).history
        listed = [k for k in history[0].drift if k.startswith("feature_norm_") and k != "feature_norm_spread"]
        assert len(listed) == (classes if classes <= LISTED else 0)


@pytest.mark.parametrize("model", ["linear", "cnn"])
def test_other_networks(model: str) -> None:
    history = holdfast.run("fedavg", model=model, drift=True, rounds=1, epochs=1, split="shards(1)").history
    assert set(NAMES) <= history[0].drift.keys()
    if model == "linear":
        assert history[0].drift["contraction"] == 1


# -- on disk ---------------------------------------------------------------------------------------------------------
def test_a_history_of_before_is_read(tmp_path: Path) -> None:
    record = RoundRecord(1, 1.0, 0.1, 10, 10, [0], {"accuracy": 0.5, "loss": 1.0})
    old = json.loads(to_line(record))
    del old["drift"]
    old |= {f"test_{name}": value for name, value in old.pop("test").items()}
    (tmp_path / "history.jsonl").write_text(json.dumps(old) + "\n")
    assert read_history(tmp_path / "history.jsonl", 1) == [record]


def test_a_resumed_run_has_the_same_drift_and_may_begin_to_look(tmp_path: Path) -> None:
    settings = {"epochs": 1, "cohort": 3, "drift": True}
    whole = holdfast.run("fedmrur", rounds=4, **settings).history
    holdfast.run("fedmrur", rounds=2, out=tmp_path / "a", **settings)
    resumed = holdfast.run(rounds=4, out=tmp_path / "a", resume=True)
    assert [r.drift for r in resumed.history] == [r.drift for r in whole]
    holdfast.run("fedmrur", rounds=2, out=tmp_path / "b", **(settings | {"drift": False}))
    later = holdfast.run(rounds=4, drift=True, out=tmp_path / "b", resume=True)
    assert [r.drift for r in later.history] == [{}, {}, *(r.drift for r in whole[2:])]


# -- in words --------------------------------------------------------------------------------------------------------
def test_every_measure_is_explained() -> None:
    page = (ROOT / "docs" / "drift.md").read_text(encoding="utf-8")
    for m in MEASURES:
        assert f"| `{m.name}` |" in page, m.name
        assert m.meaning.endswith(".")
        assert m.meaning.count(". ") == 0, "one sentence"
    rounds = looked(cohort=4)
    assert {name for r in rounds for name in r.drift if not name.startswith("feature_norm_")} < set(NAMES)
