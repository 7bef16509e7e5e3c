"""Personal evaluation against plain loops, on both engines; its settings, and what it must not touch."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from helpers import reference
from helpers.commands import call, good
from helpers.reference import World
from helpers.toys import ENGINES, FEDERATION, SETTINGS, mlp
from holdfast import DataSet, Method, run
from holdfast.engines.choose import build
from holdfast.engines.cohort import Cohort
from holdfast.engines.local_training import LocalTraining
from holdfast.parts.decay import Decay
from holdfast.training.personal import TUNED, on_mix, personalise
from holdfast.training.simulation import Simulation

every_engine = pytest.mark.parametrize("engine", ENGINES)
every_what = pytest.mark.parametrize("what", ["head", "all"])
KEYS = ("personal_accuracy", "personal_accuracy_std", "global_on_mix")


def played(**settings: object) -> tuple[Simulation, dict]:
    """A short run on the ragged federation, and its summary."""
    found: list[Simulation] = []
    asked = SETTINGS | {"rounds": 2, "lr_decay": 0.5} | settings
    result = run("fedavg", FEDERATION, mlp(), on_start=lambda simulation, done: found.append(simulation), **asked)
    return found[0], result.summary


# -- the reference ---------------------------------------------------------------------------------------------------
def scores(w: Tensor, epochs: int, head_only: bool, lr: float, batch: int, t: int) -> tuple[list[float], list[float]]:
    """Every client's score with its own copy, and with the model ``w`` itself."""
    data, deal = FEDERATION.data, FEDERATION.deal
    clients = [torch.from_numpy(deal.client(i)) for i in range(FEDERATION.clients)]
    world = World(data.x, data.y, clients, w, [], batch=batch, epochs=epochs, lr0=lr, lr_decay=1.0)
    own, plain = [], []
    for i, samples in enumerate(clients):
        if len(samples) == 0:
            continue
        copy = w.clone()
        for x, y in world.batches(t, i):
            step = lr * reference.gradient(copy, x, y)
            if head_only:
                step[:-15] = 0
            copy = copy - step
        labels = data.y[samples].tolist()
        for model, scored in ((copy, own), (w, plain)):
            total = 0.0
            for c in set(labels):
                tested = data.test_x[data.test_y == c]
                right = (reference.forward(reference.layers(model), tested)[0].argmax(1) == c).double().mean()
                total += labels.count(c) / len(labels) * float(right)
            scored.append(total)
    return own, plain


@every_engine
@every_what
@pytest.mark.parametrize("settings", [{}, {"steps": 3, "epochs": None}, {"slice": 2}, {"batch": 4}], ids=str)
def test_agrees_with_plain_loops(settings, what, engine):
    simulation, summary = played(personal=8, personal_what=what, lr=2.0, engine=engine, **settings)
    batch = settings.get("batch", SETTINGS["batch"])
    own, plain = scores(simulation.server.w, 8, what == "head", 1.0, batch, t=3)
    assert summary["personal_accuracy"] == pytest.approx(sum(own) / len(own), abs=1e-12)
    assert summary["personal_accuracy_std"] == pytest.approx(float(torch.tensor(own).double().std(correction=0)))
    assert summary["global_on_mix"] == pytest.approx(sum(plain) / len(plain), abs=1e-12)
    assert summary["personal_accuracy"] != summary["global_on_mix"]


@every_engine
def test_only_the_head_moves(engine):
    simulation, _ = played(engine=engine)
    tuned = build(
        engine, LocalTraining(simulation.net, TUNED["head"], simulation.federation, 0, 2), None, 1, None, False
    )
    who = simulation.client_info(simulation.occupied)
    job, cohort = simulation.broadcast(1, {}), Cohort(who, {}, simulation.plan(who, 1, 0, 2))
    moved = tuned.train(job, cohort).deltas != 0
    assert not moved[:, :-15].any()
    assert moved[:, -15:].all()


def test_engines_agree_on_the_copies():
    deltas = []
    for engine in ENGINES:
        simulation, _ = played(engine=engine)
        tuned = build(
            engine, LocalTraining(simulation.net, TUNED["all"], simulation.federation, 0, 2), None, 1, None, False
        )
        who = simulation.client_info(simulation.occupied)
        deltas.append(tuned.train(simulation.broadcast(1, {}), Cohort(who, {}, simulation.plan(who, 1, 0, 2))).deltas)
    torch.testing.assert_close(*deltas, rtol=0, atol=1e-12)


# -- the score -------------------------------------------------------------------------------------------------------
def test_scores_by_hand():
    nan = float("nan")
    accuracy = torch.tensor([1.0, 0.5, nan], dtype=torch.float64)  # the last class has no test samples
    counts = torch.tensor([[1, 1, 2], [0, 4, 0], [0, 0, 3]])
    assert on_mix(accuracy, counts).tolist() == [0.75, 0.5]  # the last client meets nothing that is tested


@every_engine
def test_classes_without_test_samples(engine):
    data: DataSet = FEDERATION.data
    left = data.test_y != 2
    less = replace(FEDERATION, data=replace(data, test_x=data.test_x[left], test_y=data.test_y[left]))
    summary = run("fedavg", less, mlp(), **(SETTINGS | {"personal": 1, "engine": engine})).summary
    assert all(0 <= summary[key] <= 1 for key in KEYS)


def test_the_first_clients():
    simulation, summary = played(personal=8, lr=2.0)
    own, plain = scores(simulation.server.w, 8, True, 1.0, SETTINGS["batch"], t=3)
    some = personalise(simulation, TUNED["head"], limit=3).figures
    assert some["personal_accuracy"] == pytest.approx(sum(own[:3]) / 3)
    assert some["global_on_mix"] == pytest.approx(sum(plain[:3]) / 3)
    assert personalise(simulation, TUNED["head"]).figures == {key: summary[key] for key in KEYS}


def test_a_copy_that_is_not_finite_scores_nothing():
    simulation, _ = played()
    simulation.config = simulation.config.changed(personal=3, lr=1e300)
    found = personalise(simulation, Method((Decay(1.0),))).figures
    assert found["personal_accuracy"] == 0
    assert found["global_on_mix"] > 0


def test_weight_decay_and_clip_hold_for_copies_too():
    found = [played(personal=8, lr=2.0, **flags)[1]["personal_accuracy"] for flags in ({}, {"weight_decay": 0.5})]
    assert found[0] != found[1]


# -- in a run --------------------------------------------------------------------------------------------------------
def test_nothing_else_changes():
    (plain, summary), (tuned, with_copies) = (played(personal=epochs) for epochs in (0, 3))
    assert torch.equal(plain.server.w, tuned.server.w)
    assert not summary.keys() & set(KEYS)
    assert with_copies.keys() - summary.keys() == set(KEYS)
    same = ("final", "upload_bytes", "download_bytes")
    assert [summary[key] for key in same] == [with_copies[key] for key in same]


def test_after_the_last_round_only(tmp_path):
    whole = played(personal=3)[1]
    stopped = played(personal=3, out=tmp_path, stop=lambda: True)[1]
    assert not stopped.keys() & set(KEYS)
    rest = played(personal=3, out=tmp_path, resume=True)[1]
    assert [rest[key] for key in KEYS] == [whole[key] for key in KEYS]
    again = played(personal=3, out=tmp_path, resume=True)[1]  # a finished run
    assert [again[key] for key in KEYS] == [whole[key] for key in KEYS]
    assert json.loads((tmp_path / "summary.json").read_text())["personal_accuracy"] == whole["personal_accuracy"]


def test_flags(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    short = ("run", "fedavg", "--clients", "4", "--rounds", "1", "--epochs", "1", "--model", "linear", "--quiet")
    summary = json.loads(good(*short, "--json", "--personal", "1", "--personal-what", "all").out)
    assert summary["personal_accuracy"] > summary["global_on_mix"]
    assert "personal_what must be one of head, all" in call(*short, "--personal-what", "body").err


def test_fedbabu_is_made_for_it():
    settings = {"split": "dirichlet(0.1)", "rounds": 4, "epochs": 2, "model": "mlp(32)", "personal": 3}
    summary = run("fedbabu", **settings).summary
    assert summary["personal_accuracy"] > summary["global_on_mix"] + 0.05


@pytest.mark.parametrize(
    ("method", "flags", "tuned"),
    [
        ("scaffold+momentum(0.5)", {}, "only-head + momentum(beta=0.5)"),
        ("scaffold", {"optimizer": "adam(keep=true)", "clip": 1.0}, "only-head + clip(norm=1.0) + adam(keep=true)"),
        ("scaffold", {}, "only-head"),
    ],
)
def test_copies_have_the_local_optimiser_of_the_run(method, flags, tuned, monkeypatch):
    seen = []

    def recorded(simulation, method):
        seen.append(str(method))
        return personalise(simulation, method)

    monkeypatch.setattr("holdfast.training.simulation.personalise", recorded)
    summary = run(method, FEDERATION, mlp(), **(SETTINGS | {"personal": 2, "lr": 0.05} | flags)).summary
    assert seen == [tuned]
    assert all(0 <= summary[key] <= 1 for key in KEYS)
