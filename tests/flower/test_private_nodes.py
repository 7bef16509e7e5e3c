"""Differential privacy on several machines: the messages are those of a simulation, but the noise is not."""

from __future__ import annotations

import pytest
import torch

from helpers.flower_toys import SMALL, MemoryGrid, about, on_grid
from holdfast import HoldfastError, run
from holdfast.flower.app import serve
from holdfast.method.config import Config

SETTINGS = {"rounds": 2, "epochs": 1, "delta": 1e-3}


def simulated(method: str, **settings):
    return run(method, **{**SMALL, **SETTINGS, **settings}, engine="loop", eval_every=2)


@pytest.mark.usefixtures("keyed")
@pytest.mark.parametrize("method", ["scaffold+dp(0.5, noise=0.5)", "dp(0.5, noise=0.5, quantile=0.5, counts=1)",
                                    "scaffold+dp(0.5, noise=0.5, where=clients)"])  # fmt: skip
def test_messages_carry_what_a_simulation_computes(method):
    found = on_grid(method, **SETTINGS, eval_every=2)
    assert torch.allclose(found.w, simulated(method).w, atol=1e-6)


@pytest.mark.usefixtures("keyed")
def test_rounds_without_clients():
    chance = {"participation": 0.15, "rounds": 4, "eval_every": 4, "seed": 1}
    values = {name: value for name, value in SMALL.items() if name != "cohort"} | SETTINGS | chance
    method = "scaffold+dp(0.5, noise=0.5)"
    grid = MemoryGrid({**values, "method": method}, 4)
    found = serve(grid, Config(**values, method=method), {"nodes": 4, "patience": 1.0, **values, "method": method})
    assert [] in [record.cohort for record in found.history]
    assert torch.allclose(found.w, run(method, **values, engine="loop").w, atol=1e-6)


@pytest.mark.parametrize("where", ["server", "clients"])
def test_noise_of_a_deployment_does_not_follow_from_the_seed(where):
    method = f"dp(0.5, noise=2, where={where})"
    everybody = {**SETTINGS, "cohort": 4, "rounds": 1}
    one, two = (on_grid(method, **everybody).w for _ in range(2))
    quiet = on_grid(f"dp(0.5, noise=0, where={where})", **everybody).w
    noise = [(w - quiet) * 4 / (2 * 0.5) for w in (one, two)]
    assert all(0.95 < float(n.std()) < 1.05 for n in noise)
    assert abs(float(torch.corrcoef(torch.stack(noise))[0, 1])) < 0.05


def test_a_node_that_fails_adds_nothing_and_changes_no_divisor():
    method, settings = "dp(1000, noise=0, expected=4)", {**SETTINGS, "cohort": 4, "rounds": 1}

    def without(clients):
        def trouble(request, reply):
            return None if any(about(request, 1, c) for c in clients) else reply

        grid = MemoryGrid({**SMALL, **settings, "method": method}, 4, trouble)
        return on_grid(method, grid, **settings, retries=0).w

    start = run("fedavg", **{**SMALL, "lr": 1e-30, "rounds": 1}, engine="loop").w
    whole = without([]) - start
    assert torch.allclose(without([0, 1]) + without([2, 3]) - 2 * start, whole, atol=1e-6)


def test_rounds_that_could_be_played_twice_are_refused():
    with pytest.raises(HoldfastError, match="dp needs a checkpoint after every round of a deployment"):
        on_grid("dp", **SETTINGS, checkpoint_every=2)


def test_who_fails_too_often_leaves_too_little_noise():
    method, settings = "dp(1, noise=1, where=clients)", {**SETTINGS, "rounds": 1}
    grid = MemoryGrid({**SMALL, **settings, "method": method}, 4,
                      lambda request, reply: None if about(request, 1, 0) else reply)  # fmt: skip
    with pytest.raises(HoldfastError, match="but the noise of 4 is needed"):
        on_grid(method, grid, **{**settings, "cohort": 4}, retries=0)
