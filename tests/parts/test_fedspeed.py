"""FedSpeed is FedDyn with SAM's gradient: both engines against Alg. 1 of its paper, in plain loops."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from helpers import reference
from helpers.reference import World
from helpers.reference_world import SETTINGS, world
from helpers.toys import ENGINES, quadratic, train
from holdfast import HoldfastError, Method
from holdfast.method.recipes import RECIPES

every_engine = pytest.mark.parametrize("engine", ENGINES)


def fedspeed(world: World, penalty: float, rho: float) -> Tensor:
    """The paper's ``lambda`` is 1/penalty, its gradient controller ``own``; absent clients keep theirs, and count."""
    N, x0 = len(world.clients), world.start
    own = {i: torch.zeros_like(x0) for i in range(N)}
    for cohort, lr, batches, _ in world.rounds():
        models = []
        for i, b in zip(cohort, batches, strict=True):
            x = x0
            for data, labels in b:
                x = x - lr * (reference.at_worst(x, data, labels, rho) - own[i] + penalty * (x - x0))
            own[i] = own[i] - penalty * (x - x0)
            models.append(x)
        x0 = sum(models) / len(models) - sum(own.values()) / N / penalty
    return x0


@every_engine
def test_agrees_with_the_equations(engine):
    ran = train("fedspeed(0.3, rho=0.2)", engine=engine, **SETTINGS)
    here = world([record.cohort for record in ran.history])
    expected = fedspeed(here, 0.3, 0.2)
    moved = (expected - here.start).abs().max()
    assert (ran.after[-1]["served"] - expected).abs().max() <= 1e-9 * moved
    assert (reference.feddyn(here, 0.3) - expected).abs().max() > 1e-3


@every_engine
def test_one_round_by_hand(engine):
    # penalty = rho = 1/2, lr = 1/2, one client with b = 9, from 1: the gradient is taken 1/2 further from b.
    #   -8.5, w = 5.25; -3.75 - 0.5 = -4.25, plus (5.25 - 1)/2, w = 5.25 + 1.0625.
    #   delta = 5.3125, the controller is -2.65625, w = 6.3125 + 2.65625/0.5: twice the delta.
    ran = quadratic(Method.parse("fedspeed(0.5, rho=0.5)"), (9.0, 2), start=1.0, engine=engine)
    assert ran.after[1]["w"].item() == 1 + 2 * 5.3125
    assert ran.after[1]["0/feddyn/h"].item() == -2.65625


def test_is_a_sum():
    assert RECIPES["fedspeed"].sum == "feddyn(0.1)+sam(rho=0.1)"
    assert Method.parse("fedspeed(0.3, rho=0.2)") == Method.parse("feddyn(alpha=0.3)+sam(0.2)")
    with pytest.raises(HoldfastError, match=r"^sam appears twice in the sum: keep one of them$"):
        Method.parse("fedspeed+fedsam")
