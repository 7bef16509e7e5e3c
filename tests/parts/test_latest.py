"""latest: the served model is the mean of the last models that all clients returned."""

from __future__ import annotations

import pytest
import torch

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
