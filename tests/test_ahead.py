"""Batches drawn ahead, as on a GPU, are the batches drawn when they are needed."""

from __future__ import annotations

import pytest
import torch

from holdfast.ahead import Ahead
from holdfast.config import Config
from holdfast.draw import draw
from holdfast.method import as_method
from holdfast.rounds import prepare
from holdfast.simulation import Simulation


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fnr(0.5)", "fedagg"])
@pytest.mark.parametrize("chance", [{"cohort": 3}, {"participation": 0.5}])
def test_a_run_with_batches_drawn_ahead_is_the_run(method, chance):
    config = Config(method=method, clients=6, rounds=4, epochs=1, model="linear", public=0.1, **chance)
    found = []
    for ahead in (False, True):
        sim = prepare(config, as_method(method), None, None)
        assert isinstance(sim, Simulation)
        if ahead:
            sim.ahead = Ahead(lambda t, s=sim: s._with_batches(t, draw(config, s.occupied, t)))
        played = [sim.play(t).cohort for t in range(1, 5)]
        found.append((sim.server.w, played))
        if ahead:
            assert sim.ahead.begun == {}, "nothing is begun behind the last round"
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_an_error_in_the_thread_reaches_the_round():
    ahead = Ahead(lambda t: 1 // (t - 2))
    ahead.begin(2)
    assert ahead.take(3) == 1
    ahead.begin(2)
    with pytest.raises(ZeroDivisionError):
        ahead.take(2)
