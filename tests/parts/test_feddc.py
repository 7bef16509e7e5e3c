"""FedDC is FedDyn and SCAFFOLD in one: both engines against its own equations, with drift variables, in plain loops."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from helpers import reference
from helpers.reference import Batches, World
from helpers.reference_world import SETTINGS, world
from helpers.toys import ENGINES, quadratic, train
from holdfast import HoldfastError, Method
from holdfast.method.recipes import RECIPES

every_engine = pytest.mark.parametrize("engine", ENGINES)


# -- the reference ---------------------------------------------------------------------------------------------------
def feddc(world: World, a: float, percent: int | None = None) -> Tensor:
    """As the authors' code has it: the server adds the mean drift of all clients to the mean model of the cohort."""
    N, w0 = len(world.clients), world.start
    drift, state = ({i: torch.zeros_like(w0) for i in range(N)} for _ in range(2))
    common = torch.zeros_like(w0)
    for cohort, lr, batches, _ in world.rounds():
        models, changes = [], torch.zeros_like(w0)
        for i, own in zip(cohort, batches, strict=True):
            w, saw = local(w0, own, lr, a, drift[i], common - state[i], percent)
            if percent is None:  # the printed way to say what the client saw, without the correction
                torch.testing.assert_close(saw, state[i] - common - (w - w0) / (len(own) * lr), rtol=0, atol=1e-12)
            drift[i] = drift[i] + (w - w0)
            changes += saw - state[i]
            state[i] = saw
            models.append(w)
        common = common + changes / N
        w0 = sum(models) / len(models) + sum(drift.values()) / N
    return w0


def local(
    w0: Tensor, batches: Batches, lr: float, a: float, drift: Tensor, correction: Tensor, percent: int | None
) -> tuple[Tensor, Tensor]:
    """The client's model, and the mean of g + a*(w + drift - w0) over the steps in which a layer was free."""
    layer = torch.cat([torch.full((p.numel(),), i) for i, pair in enumerate(reference.layers(w0)) for p in pair])
    w, total, times = w0, torch.zeros_like(w0), torch.zeros_like(w0)
    for k, (x, y) in enumerate(batches, start=1):
        free = 3 if percent is None else reference.unfrozen(k, len(batches), percent)
        moves = (layer < free).double()
        g = reference.gradient(w, x, y, free=free) + a * (w + drift - w0)
        total, times = total + moves * g, times + moves
        w = w - lr * moves * (g + correction)
    return w, total / times


@every_engine
@pytest.mark.parametrize(("method", "percent"), [("feddc(0.3)", None), ("fedbug(0.7)+feddc(0.3)", 70)])
def test_agrees_with_the_equations(method, percent, engine):
    ran = train(method, engine=engine, **SETTINGS)
    here = world([record.cohort for record in ran.history])
    expected = feddc(here, 0.3, percent)
    moved = (expected - here.start).abs().max()
    assert (ran.after[-1]["served"] - expected).abs().max() <= 1e-9 * moved
    assert (reference.feddyn(here, 0.3) - expected).abs().max() > 1e-3


# -- by hand ---------------------------------------------------------------------------------------------------------
@every_engine
def test_two_rounds_by_hand(engine):
    # a = 1/2, lr = 1/2, gradient w - b. Round 1, nothing remembered.
    #   b = 0: stays; drift 0, c_0 = 0.
    #   b = 4: -4, w = 2; -2 + (2 + 0 - 0)/2 = -1, w = 2.5.  drift 2.5, c_1 = (-4 - 1)/2 = -delta/(K*lr).
    #   c = -1.25, w = (0 + 2.5)/2 + (0 + 2.5)/2 = 2.5.
    # Round 2 from 2.5.
    #   b = 0: 2.5 - 0 - 1.25 = 1.25, w = 1.875; 1.875 + (1.875 - 2.5)/2 = 1.5625, less 1.25, w = 1.71875.
    #          drift -0.78125, c_0 = (2.5 + 1.5625)/2.
    #   b = 4: -1.5 + 2.5/2 = -0.25, plus 2.5 - 1.25, w = 2; -2 + (2 + 2.5 - 2.5)/2 = -1, plus 1.25, w = 1.875.
    #          drift 2.5 - 0.625, c_1 = (-0.25 - 1)/2.
    #   c = -1.25 + (2.03125 + 1.875)/2, w = (1.71875 + 1.875)/2 + (-0.78125 + 1.875)/2.
    # FedDyn remembers -a times the drift.
    ran = quadratic(Method.parse("feddc(0.5)"), (0.0, 2), (4.0, 2), engine=engine, rounds=2)
    names = ("w", "scaffold/c", "0/scaffold/c", "1/scaffold/c", "feddyn/h", "0/feddyn/h", "1/feddyn/h")
    found = [tuple(after[name].item() for name in names) for after in ran.after[1:]]
    assert found[0] == (2.5, -1.25, 0, -2.5, -0.625, 0, -1.25)
    assert found[1] == (2.34375, 0.703125, 2.03125, -0.625, -0.2734375, 0.390625, -0.9375)


# -- who is absent counts --------------------------------------------------------------------------------------------
def as_printed(cohorts: list[list[int]], targets: list[float], a: float, lr: float, steps: int) -> list[float]:
    """The paper's text on the model of one number: the last updates as they are, and the cohort's mean of w_i + h_i."""
    drift, last, w0, common, found = [0.0] * len(targets), [0.0] * len(targets), 0.0, 0.0, []
    for cohort in cohorts:
        models = []
        for i in cohort:
            w, correction = w0, (last[i] - common) / (steps * lr)
            for _ in range(steps):
                w -= lr * (w - targets[i] + a * (w + drift[i] - w0) + correction)
            last[i] = w - w0
            drift[i] += w - w0
            models.append(w + drift[i])
        common = sum(last[i] for i in cohort) / len(cohort)
        w0 = sum(models) / len(models)
        found.append(w0)
    return found


def test_settles_when_one_of_two_clients_takes_part():
    # The optimum of both is 2, where the drifts are -2/a and 2/a. Their mean over all is 0, over a cohort it is not.
    clients, rounds = ((0.0, 2), (4.0, 2)), 300
    settings = {"cohort": 1, "rounds": rounds, "lr": 0.25, "engine": "loop"}
    ran = quadratic(Method.parse("feddc(1)"), *clients, **settings)
    assert abs(ran.after[-1]["w"].item() - 2) < 1e-6
    printed = as_printed([record.cohort for record in ran.history], [0.0, 4.0], a=1.0, lr=0.25, steps=2)
    assert max(abs(w - 2) for w in printed[-20:]) > 1
    everyone = as_printed([[0, 1]] * rounds, [0.0, 4.0], a=1.0, lr=0.25, steps=2)
    assert abs(everyone[-1] - 2) < 1e-6


# -- the sum ---------------------------------------------------------------------------------------------------------
def test_is_a_sum():
    assert RECIPES["feddc"].sum == "feddyn(0.1)+scaffold"
    assert Method.parse("feddc(0.01)") == Method.parse("feddyn(alpha=0.01)+scaffold")


@pytest.mark.parametrize(
    ("sum", "reason"),
    [
        ("feddc+scaffold", "scaffold appears twice in the sum: keep one of them"),
        ("feddc+feddyn", "feddyn appears twice in the sum: keep one of them"),
        ("feddc+fedadam", "feddyn and fedadam cannot be summed: both define the server step; keep one of them"),
        ("feddc(0)", "feddyn: alpha must be a number above 0, not 0"),
    ],
)
def test_refused_with_a_reason(sum, reason):
    with pytest.raises(HoldfastError) as caught:
        Method.parse(sum)
    assert str(caught.value) == reason


def test_traffic_is_twice_that_of_fedavg():
    plain, ours = (train(method, rounds=1).history[0] for method in ("fedavg", "feddc"))
    assert ours.upload_bytes == 2 * plain.upload_bytes
    assert ours.download_bytes == 2 * plain.download_bytes
