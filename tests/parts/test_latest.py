"""latest: the served model is the mean of the last models that all clients returned."""

from __future__ import annotations

import pytest
import torch

import holdfast
from helpers.toys import ENGINES, FEDERATION, assert_same, known, mlp, train
from holdfast.method.config import Config
from holdfast.method.method import as_method
from holdfast.runs.setup import prepare_simulation
from holdfast.training.simulation import Simulation


@pytest.mark.parametrize("engine", ["loop", "vector"])
@pytest.mark.parametrize("method", ["latest", "feddyn(0.1)+latest", "fedexp+fedbug(0.4)+latest"])
def test_the_mean_of_all(method, engine):
    config = Config(
        method=method, clients=5, cohort=2, rounds=6, epochs=1, model="linear", engine=engine, precision="fp64"
    )
    sim = prepare_simulation(config, as_method(method), None, None)
    assert isinstance(sim, Simulation)
    models = sim.net.initial.repeat(5, 1)
    train = sim.train

    def watched(job, ids):
        back = train(job, ids)
        models[back.ids] = job.w0 + back.deltas
        return back

    sim.train = watched
    for t in range(1, 7):
        sim.play(t)
        assert torch.allclose(sim.server.served(), models.mean(0), rtol=1e-12, atol=1e-13)
    assert not torch.allclose(sim.server.served(), sim.server.w)


def test_training_does_not_notice():
    found = []
    for method in ("scaffold", "scaffold+latest"):
        config = Config(method=method, clients=5, cohort=2, rounds=3, epochs=1, model="linear")
        sim = prepare_simulation(config, as_method(method), None, None)
        for t in range(1, 4):
            sim.play(t)
        found.append(sim.server.w)
    assert torch.equal(*found)


@pytest.mark.parametrize("engine", ENGINES)
def test_clients_without_samples_do_not_count(engine):
    """One of the five clients is empty: with it, the initial model would stay in the mean for ever."""
    ran = train("latest", engine=engine, rounds=6, cohort=2)
    occupied = [0, 1, 3, 4]
    assert FEDERATION.occupied.tolist() == occupied
    first = ran.after[0]["w"]
    for after in ran.after:
        models = torch.stack([after.get(f"{i}/latest/w", first) for i in occupied])
        assert torch.allclose(after["served"], models.mean(0), rtol=1e-12, atol=1e-13)
    assert {i for i in occupied if f"{i}/latest/w" in ran.after[-1]} == set(occupied)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mean", ["samples", "uniform"])
def test_the_mean_of_the_cohort(mean, engine):
    """What FedDyn's published code scores: the cohort's models without the server's correction."""
    ran = train(f"feddyn(0.1)+mean({mean})+latest(of=cohort)", engine=engine, rounds=4)
    alpha = 0.1
    for record, before, after in zip(ran.history, ran.after, ran.after[1:], strict=False):
        h = [(before.get(f"{i}/feddyn/h", 0 * before["w"]), after[f"{i}/feddyn/h"]) for i in record.cohort]
        deltas = [(old - new) / alpha for old, new in h]
        sizes = [len(FEDERATION.deal.client(i)) if mean == "samples" else 1 for i in record.cohort]
        expected = before["w"] + sum(n * d for n, d in zip(sizes, deltas, strict=True)) / sum(sizes)
        assert torch.allclose(after["served"], expected, rtol=1e-9, atol=1e-10)
        assert torch.allclose(after["w"], expected - after["feddyn/h"] / alpha, rtol=1e-9, atol=1e-10)


def test_without_a_server_step_the_mean_of_the_cohort_is_the_global_model():
    for after in train("latest(of=cohort)").after:
        assert torch.allclose(after["served"], after["w"], rtol=0, atol=1e-15)


@pytest.mark.parametrize("method", ["latest", "latest(of=cohort)"])
def test_resuming_changes_nothing(method, tmp_path):
    found = []
    settings = {"precision": "fp64", "rounds": 4, "cohort": 2, "epochs": 1}
    for stops in ((4,), (2, 4)):
        out = tmp_path / str(len(stops))
        for resume, last in enumerate(stops):
            kept = []
            result = holdfast.run(
                method, FEDERATION, mlp(), out=out, resume=bool(resume), **settings | {"rounds": last},
                on_start=lambda simulation, done, kept=kept: kept.append(simulation),
            )  # fmt: skip
        found.append(known(kept[0]) | {"result": result.w})
    assert_same(*found)
