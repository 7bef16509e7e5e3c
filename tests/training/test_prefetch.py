"""Batches drawn ahead, as on a GPU, are the batches drawn when they are needed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from holdfast.method.config import Config
from holdfast.method.method import as_method
from holdfast.runs.setup import prepare_simulation
from holdfast.training.prefetch import Prefetcher
from holdfast.training.simulation import Simulation


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fnr(0.5)", "fedagg"])
@pytest.mark.parametrize("chance", [{"cohort": 3}, {"participation": 0.5}])
def test_a_run_with_batches_drawn_ahead_is_the_run(method, chance):
    config = Config(method=method, clients=6, rounds=4, epochs=1, model="linear", public=0.1, **chance)
    found = []
    for ahead in (False, True):
        sim = prepare_simulation(config, as_method(method), None, None)
        assert isinstance(sim, Simulation)
        if ahead:
            sim.prefetcher = Prefetcher(sim._upcoming)
        played = [sim.play(t).cohort for t in range(1, 5)]
        found.append((sim.server.w, played))
        if ahead:
            assert sim.prefetcher.started == {}, "nothing is begun behind the last round"
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_clients_that_the_draw_did_not_choose_get_their_own_batches():
    config = Config(clients=6, cohort=2, rounds=4, epochs=1, model="linear")
    found = []
    for ahead in (False, True):
        sim = prepare_simulation(config, as_method("fedavg"), None, None)
        assert isinstance(sim, Simulation)
        sim.prefetcher = Prefetcher(sim._upcoming) if ahead else None
        back = sim.train(sim.broadcast(2, {}), np.array([0, 1, 2]))
        assert back.ids.tolist() == [0, 1, 2]
        found.append(back.deltas)
    assert torch.equal(*found)


def test_an_error_in_the_thread_reaches_the_round():
    ahead = Prefetcher(lambda t: 1 // (t - 2))
    ahead.start(2)
    assert ahead.take(3) == 1
    ahead.start(2)
    with pytest.raises(ZeroDivisionError):
        ahead.take(2)
