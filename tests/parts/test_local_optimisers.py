"""Local optimisers: equal to PyTorch's, and right under every part that stands on the gradients of a round."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from helpers import reference
from helpers import reference_optimisers as torchs
from helpers.reference_world import SETTINGS, world
from helpers.toys import ENGINES, Halving, Progress, Refine, quadratic, train
from holdfast import Client, Part, Tensors
from holdfast.parts._adam_step import seen
from holdfast.parts.fedcm import FedCM
from holdfast.parts.feddyn import FedDyn
from holdfast.parts.mean import Mean
from holdfast.parts.momentum import Momentum
from holdfast.parts.nova import Nova
from holdfast.parts.scaffold import Scaffold

every_engine = pytest.mark.parametrize("engine", ENGINES)
BETAS = {"betas": (0.8, 0.95), "eps": 1e-6}
FLAGS = {"clip": 0.5, "weight_decay": 0.1}  # clip, then decay, then the optimiser


def compared(method: str, expected, engine: str, tolerance: float = 1e-12, **settings: object) -> None:
    """Run a method on the ragged federation, and compare the model with that of a reference."""
    ran = train(method, engine=engine, **(SETTINGS | settings))
    here = world([record.cohort for record in ran.history])
    found, model = ran.after[-1]["w"], expected(here)
    moved = (model - here.start).abs().max()
    assert moved > 0.05
    assert (found - model).abs().max() <= tolerance * moved


# -- PyTorch's optimisers --------------------------------------------------------------------------------------------
LIKE_TORCH = {
    "momentum(0.8)": (torchs.sgd(momentum=0.8), {"lr": 0.1}),
    "momentum(0.8, nesterov=true)": (torchs.sgd(momentum=0.8, nesterov=True), {"lr": 0.1}),
    "adam(0.8, 0.95, 1e-6)": (torchs.adam(**BETAS), {"lr": 0.05}),
    "adamw(0.8, 0.95, 1e-6, decay=0.2)": (torchs.adamw(**BETAS, weight_decay=0.2), {"lr": 0.05}),
    "adam": (torchs.adam(), {"lr": 0.05}),
    "adamw": (torchs.adamw(), {"lr": 0.05}),
}


def at(here: reference.World, lr: float) -> reference.World:
    return reference.World(**(vars(here) | {"lr0": lr}))


def kept(method: str) -> str:
    """The same optimiser, which keeps its state at the client."""
    return method[:-1] + ", keep=true)" if method.endswith(")") else f"{method}(keep=true)"


@every_engine
@pytest.mark.parametrize("keep", [False, True], ids=["new", "kept"])
@pytest.mark.parametrize("method", LIKE_TORCH)
def test_equals_torch(method, keep, engine):
    build, settings = LIKE_TORCH[method]
    name = kept(method) if keep else method
    compared(name, lambda here: torchs.averaging(at(here, **settings), build, keep=keep), engine, **settings)


@every_engine
@pytest.mark.parametrize("keep", [False, True], ids=["new", "kept"])
@pytest.mark.parametrize(
    ("method", "build"),
    [
        ("momentum(0.8)", torchs.sgd(momentum=0.8, weight_decay=0.1)),
        ("momentum(0.8, nesterov=true)", torchs.sgd(momentum=0.8, nesterov=True, weight_decay=0.1)),
        ("adam(0.8, 0.95, 1e-6)", torchs.adam(**BETAS, weight_decay=0.1)),
    ],
)
def test_clip_and_weight_decay_come_first(method, build, keep, engine):
    name = kept(method) if keep else method
    compared(name, lambda here: torchs.averaging(at(here, 0.1), build, 0.5, keep), engine, lr=0.1, **FLAGS)


@every_engine
def test_adamw_decays_what_is_not_clipped(engine):
    build = torchs.adamw(**BETAS, weight_decay=0.2)
    name = "adamw(0.8, 0.95, 1e-6, decay=0.2)"
    compared(name, lambda here: torchs.averaging(at(here, 0.05), build, 0.5), engine, lr=0.05, clip=0.5)


@every_engine
@pytest.mark.parametrize("keep", [False, True], ids=["new", "kept"])
@pytest.mark.parametrize("method", LIKE_TORCH)
def test_frozen_layers_keep_their_state(method, keep, engine):
    build, settings = LIKE_TORCH[method]
    name = f"fedbug(0.7)+{kept(method) if keep else method}"
    compared(name, lambda here: torchs.averaging(at(here, **settings), build, 0, keep, 70), engine, **settings)


@every_engine
@pytest.mark.parametrize("optimiser", ["momentum(0.8, keep=true)", "adam(0.8, 0.95)", "adamw(decay=0.1)"])
def test_the_place_in_the_sum_does_not_matter(optimiser, engine):
    parts = ["prox(0.1)", "clip(0.5)", "scaffold"]
    sums = ["+".join([*parts[:i], optimiser, *parts[i:]]) for i in range(4)]
    first, *others = (train(sum, engine=engine, lr=0.1, rounds=2).after[-1]["w"] for sum in sums)
    assert all(torch.equal(w, first) for w in others)


@every_engine
def test_the_flag_is_the_part(engine):
    for text, part in (("momentum(0.8)", "+momentum(0.8)"), ("adam", "+adam"), ("sgd", ""), (None, "")):
        flag, written = (
            train(method, engine=engine, lr=0.05, rounds=2, optimizer=optimiser, **FLAGS).after[-1]["w"]
            for method, optimiser in (("prox", text), ("prox" + part, None))
        )
        assert torch.equal(flag, written)


def test_the_bias_correction_is_exact_in_float32():
    for beta in (0.0, 0.9, 0.999, 0.99999):
        for steps in (1, 2, 10, 1000):
            exact = 1 - beta**steps
            assert float(seen(beta, torch.tensor(float(steps)))) == pytest.approx(exact, rel=3e-7)


# -- parts that stand on the gradients of a round --------------------------------------------------------------------
STANDING = {
    "scaffold+momentum(0.8)": lambda here: torchs.scaffold(here, torchs.sgd(momentum=0.8)),
    "momentum(0.8, nesterov=true)+scaffold": lambda here: torchs.scaffold(
        here, torchs.sgd(momentum=0.8, nesterov=True)
    ),
    "scaffold+adam(0.8, 0.95, 1e-6)": lambda here: torchs.scaffold(here, torchs.adam(**BETAS)),
    "feddyn(0.1)+momentum(0.8)": lambda here: torchs.feddyn(here, torchs.sgd(momentum=0.8), 0.1),
    "adam(0.8, 0.95, 1e-6)+feddyn(0.1)": lambda here: torchs.feddyn(here, torchs.adam(**BETAS), 0.1),
    "fedcm(0.3)+momentum(0.8)": lambda here: torchs.fedcm(here, 0.3, 0.8),
    "fedcm(0.3)+momentum(0.8, nesterov=true)": lambda here: torchs.fedcm(here, 0.3, 0.8, nesterov=True),
    "nova+momentum(0.8)": lambda here: torchs.fednova(here, 0.8, printed=True),
    "nova+momentum(0.8, nesterov=true)": lambda here: torchs.fednova(here, 0.8, nesterov=True),
    "nova+momentum(0.8, keep=true)": lambda here: torchs.fednova(here, 0.8, keep=True),
    "nova+fedbug(0.7)": lambda here: torchs.fednova_fedbug(here, 70),
    "nova+fedbug(0.7)+momentum(0.8)": lambda here: torchs.fednova_fedbug(here, 70, 0.8),
}


@every_engine
@pytest.mark.parametrize("method", STANDING)
def test_agrees_with_its_equations(method, engine):
    compared(method, lambda here: STANDING[method](at(here, 0.05)), engine, 1e-10, lr=0.05)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("K", [1, 2, 7])
def test_the_papers_normaliser_adds_up_the_weights(K, rho):
    assert torchs.total(K, rho) == pytest.approx(torchs.paper(K, rho), rel=1e-12)


@every_engine
@pytest.mark.parametrize(
    ("optimiser", "build"),
    [("momentum(0.8)", torchs.sgd(momentum=0.8)), ("adam(0.8, 0.95, 1e-6)", torchs.adam(**BETAS))],
)
def test_fedagg_averages_the_steps_that_its_rate_multiplies(optimiser, build, engine):
    ran = train(f"fedagg+{optimiser}", engine=engine, **(SETTINGS | {"lr": 0.05, "rounds": 2}))
    here = at(world([record.cohort for record in ran.history]), 0.05)
    expected = torchs.steps_per_epoch(here, build)
    assert (ran.after[1]["fedagg/phi1"] - expected).abs().max() <= 1e-10 * expected.abs().max()


# -- closed forms ----------------------------------------------------------------------------------------------------
@every_engine
def test_two_steps_by_hand(engine):
    # From w = 1 towards b = 9, lr = 1/2, beta = 1/2: d = -8, m = -8, w = 5; d = -4, m = -8, w = 9.
    # Nesterov: d = -8, m = -8, step -12, w = 7; d = -2, m = -6, step -5, w = 9.5.
    # Kept: round 2 from 9 with m = -8: d = 0, m = -4, w = 11; d = 2, m = 0, w = 11.
    def after(part: Part, rounds: int = 1) -> list[float]:
        ran = quadratic(part, (9.0, 2), start=1.0, engine=engine, rounds=rounds)
        return [round["w"].item() for round in ran.after[1:]]

    assert after(Momentum(0.5)) == [9.0]
    assert after(Momentum(0.5, nesterov=True)) == [9.5]
    assert after(Momentum(0.5), 2) == [9.0, 9.0]
    assert after(Momentum(0.5, keep=True), 2) == [9.0, 11.0]


def resting_place(part: Part, engine: str, **settings: object) -> float:
    """Where a round moves the model of one number nowhere; the move is linear in the model, so two rounds tell."""
    clients = (0.0, 1), (8.0, 9)
    moves = []
    for start in (0.0, 1.0):
        ran = quadratic(part, *clients, start=start, engine=engine, **settings)
        moves.append(ran.after[1]["w"].item() - start)
    return moves[0] / (moves[0] - moves[1])


@every_engine
@pytest.mark.parametrize("nesterov", [False, True])
def test_fednova_minimises_the_weighted_loss_under_momentum(nesterov, engine):
    # The loss is p_0 w^2/2 + p_1 (w - 8)^2/2 with p = 1/10, 9/10: its minimum is 7.2. Clients take 1 and 9 steps.
    momentum = Momentum(0.9, nesterov)
    assert resting_place(Nova() + momentum, engine, lr=1e-6) == pytest.approx(7.2, abs=1e-3)
    assert resting_place(momentum, engine, lr=1e-6) > 7.9  # the client with more steps dominates
    # Dividing by the number of steps instead of a_i: a_1/K_1 = 4.3... times too much for the second client.
    a = torchs.total(9, 0.9, nesterov) / torchs.total(1, 0.9, nesterov) / 9
    assert 8 * 0.9 * a / (0.1 + 0.9 * a) > 7.5


@every_engine
@pytest.mark.parametrize("rates", [Progress(), Halving()], ids=["rates", "absolute rates"])
def test_fednova_minimises_the_weighted_loss_under_other_rates(rates, engine):
    lr = {} if isinstance(rates, Halving) else {"lr": 1e-6}
    found = resting_place(Nova() + rates, engine, **lr)
    if isinstance(rates, Halving):  # rates 1/2 and 1/4: deltas (1 - 1/2) * -w and (1 - 3/4^9) * (8 - w)
        moves = 0.1 * 0.5 / 0.5, 0.9 * (1 - 0.75**9) / (9 * 0.25)
        assert found == pytest.approx(8 * moves[1] / sum(moves), rel=1e-12)
    else:
        assert found == pytest.approx(7.2, abs=1e-3)


@every_engine
@pytest.mark.parametrize("part", [Scaffold(), FedDyn(0.5)], ids=str)
@pytest.mark.parametrize("momentum", [Momentum(0.5), Momentum(0.5, nesterov=True), Momentum(0.5, keep=True)], ids=str)
def test_corrections_reach_the_minimum_under_momentum(part, momentum, engine):
    # Three clients with 1, 2 and 5 steps; the minimum of the uniform mean is 4. Momentum alone stays far from it.
    clients = (0.0, 1), (4.0, 2), (8.0, 5)
    settings = {"lr": 0.4, "engine": engine}
    ran = quadratic(part + momentum + Mean("uniform"), *clients, rounds=60, **settings)
    assert ran.after[-1]["w"].item() == pytest.approx(4.0, abs=1e-6)
    alone = [
        after["w"].item() for after in quadratic(momentum + Mean("uniform"), *clients, rounds=20, **settings).after
    ]
    assert alone[-1] == pytest.approx(alone[-2], abs=1e-3), "it has settled"
    assert abs(alone[-1] - 4) > 0.3


@dataclass(frozen=True)
class Slope(Part):
    """The gradient is 2 in every coordinate, whatever the model and the data."""

    name = "toy-slope"

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return torch.full_like(g, 2.0), {}


@every_engine
@pytest.mark.parametrize("momentum", [Momentum(0.9), Momentum(0.9, nesterov=True)], ids=str)
@pytest.mark.parametrize("rates", [None, Progress()], ids=["plain", "rates"])
def test_fedcm_finds_the_gradient_again(rates, momentum, engine):
    # Every direction of a round is alpha * 2 + (1 - alpha) * D, so the new D must be exactly that.
    method = Slope() + FedCM(0.25) + momentum
    ran = quadratic(method if rates is None else method + rates, (0.0, 1), (0.0, 6), engine=engine, rounds=3)
    D = 0.0
    for round in ran.after[1:]:
        D = 0.25 * 2 + 0.75 * D
        assert round["fedcm/D"].item() == pytest.approx(D, rel=1e-12)


@every_engine
def test_a_constant_gradient_is_found_again_under_kept_momentum(engine):
    # delta_i / a_i is the gradient itself, also when m is left from earlier rounds: the update is -2 * lr * tau_eff.
    ran = quadratic(Slope() + Nova() + Momentum(0.5, keep=True), (0.0, 1), (0.0, 3), engine=engine, rounds=3)
    before = 0.0
    for t, round in enumerate(ran.after[1:]):
        typical = 0.25 * torchs.total(1, 0.5, before=t) + 0.75 * torchs.total(3, 0.5, before=3 * t)
        assert round["w"].item() - before == pytest.approx(-2 * 0.5 * typical, rel=1e-12)
        before = round["w"].item()


# -- wherever clients train ------------------------------------------------------------------------------------------
@every_engine
def test_a_further_trip_has_the_optimiser(engine):
    # b = 0: the client stays at 0 in its first training. Then towards 8: d = -8, m = -8, w = 4; d = -4, m = -8, w = 8.
    for keep in (False, True):
        ran = quadratic(Refine() + Momentum(0.5, keep=keep), (0.0, 2), engine=engine)
        assert ran.after[1]["w"].item() == 8.0
