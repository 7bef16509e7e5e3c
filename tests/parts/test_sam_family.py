"""ASAM, FedGAMMA, FedSMOO, the step-only normalisation and options of published code against plain loops."""

from __future__ import annotations

import math

import pytest
import torch

from helpers import reference
from helpers import reference_sam as ref
from helpers.reference_world import SETTINGS, world
from helpers.toys import ENGINES, quadratic, train
from holdfast import HoldfastError, Method
from holdfast.parts.feddyn import FedDyn
from holdfast.parts.normalized import Normalized
from holdfast.parts.sam import Sam
from holdfast.parts.smoo import Smoo

every_engine = pytest.mark.parametrize("engine", ENGINES)

CASES = {
    "fedsam(0.5, adaptive=true)": (ref.asam, {"rho": 0.5, "eta": 0.01}),
    "sam(0.5, adaptive=true, offset=0)": (ref.asam, {"rho": 0.5, "eta": 0.0}),
    "fedbug(0.7)+sam(0.5, adaptive=true)": (ref.fedbug_asam, {"percent": 70, "rho": 0.5, "eta": 0.01}),
    "fedgamma": (ref.fedgamma, {"rho": 0.1}),
    "fedgamma(rho=0.3)": (ref.fedgamma, {"rho": 0.3}),
    "fedsmoo": (ref.fedsmoo, {"penalty": 0.1, "rho": 0.1}),
    "fedsmoo(0.3, rho=0.2)": (ref.fedsmoo, {"penalty": 0.3, "rho": 0.2}),
    "fedsmoo(0.3, rho=0.2, dual=last)": (ref.fedsmoo, {"penalty": 0.3, "rho": 0.2, "last": True}),
    "fedbug(0.7)+smoo(0.2)": (ref.smoo_unfreezing, {"percent": 70, "rho": 0.2}),
    "fedcm(0.3)+normalized": (ref.fedcm_normalized, {"alpha": 0.3, "step_only": False}),
    "fedcm(0.3)+normalized(at=step)": (ref.fedcm_normalized, {"alpha": 0.3, "step_only": True}),
    "fedexp(1, factor=1, scaled=true, average=false)": (ref.fedexp_of_fedbug, {}),
    "fedexp(scaled=true)+mean(samples)": (ref.fedexp_of_its_authors, {"eps": 1e-3}),
    "feddecorr(0.5, scale=code, eps=1e-8)": (ref.feddecorr_of_fedbug, {"beta": 0.5}),
}


@every_engine
@pytest.mark.parametrize("method", CASES)
def test_agrees_with_the_equations(method, engine):
    ran = train(method, engine=engine, **SETTINGS)
    equations, parameters = CASES[method]
    here = world([record.cohort for record in ran.history])
    expected = equations(here, **parameters)
    moved = (expected - here.start).abs().max()
    assert moved > 0.05
    assert (ran.after[-1]["served"] - expected).abs().max() <= 1e-10 * moved


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("fedsam(0.5, adaptive=true)", "sam(0.5, adaptive=true, offset=0)"),
        ("fedsmoo(0.3, rho=0.2)", "fedsmoo(0.3, rho=0.2, dual=last)"),
        ("fedcm(0.3)+normalized", "fedcm(0.3)+normalized(at=step)"),
    ],
)
def test_the_readings_differ(one, other):
    here = world([[0, 3, 4], [1, 3, 4], [0, 1, 4]])
    models = [equations(here, **parameters) for equations, parameters in (CASES[one], CASES[other])]
    assert (models[0] - models[1]).abs().max() > 1e-5


def test_the_references_are_not_what_they_are_built_on():
    here = world([[0, 3, 4], [1, 3, 4], [0, 1, 4]])
    assert (ref.asam(here, 0.5, 0.01) - reference.fedsam(here, 0.5)).abs().max() > 1e-3
    assert (ref.fedgamma(here, 0.3) - reference.scaffold(here)).abs().max() > 1e-3
    assert (ref.fedsmoo(here, 0.3, 0.2) - reference.feddyn(here, 0.3)).abs().max() > 1e-3
    assert (ref.feddecorr_of_fedbug(here, 0.5) - reference.fedavg(here)).abs().max() > 1e-3


# -- by hand ---------------------------------------------------------------------------------------------------------
@every_engine
def test_adaptive_sam_by_hand(engine):
    # From 2 towards 8: g0 = -6 and T = 2, T^2 g0/||T g0|| = -2. The gradient at 2 - 0.5 * 2 = 1 is -7; lr 1/2.
    ran = quadratic(Sam(0.5, adaptive=True, offset=0.0), (8.0, 1), start=2.0, engine=engine)
    assert ran.after[1]["w"].item() == 2 + 3.5
    # With offset 1, T = 3: the gradient at 2 - 1.5 is -7.5.
    ran = quadratic(Sam(0.5, adaptive=True, offset=1.0), (8.0, 1), start=2.0, engine=engine)
    assert ran.after[1]["w"].item() == 2 + 3.75


@every_engine
def test_without_weights_and_offset_nothing_is_perturbed(engine):
    ran = quadratic(Sam(0.5, adaptive=True, offset=0.0), (8.0, 1), engine=engine)
    assert ran.after[1]["w"].item() == 4  # the plain step from 0


@every_engine
def test_one_perturbation_for_all_by_hand(engine):
    # rho = lr = 1/2, one step each from 0. Client 0 towards 8: g = -8, s_1 = -1/2, the gradient there is -8.5, it moves
    # by 4.25. Client 1 towards -4: s_1 = 1/2, gradient 4.5, by -2.25. mu are -1/2 and 1/2, their weighted mean is
    # (3 * -1/2 + 1/2)/4 < 0, so s = -1/2 (batches of four, so that a client makes one step).
    ran = quadratic(Smoo(0.5), (8.0, 3), (-4.0, 1), batch=4, rounds=2, engine=engine)
    assert [ran.after[1][f"{i}/smoo/mu"].item() for i in (0, 1)] == [-0.5, 0.5]
    assert ran.after[1]["smoo/s"].item() == -0.5
    w = (3 * 4.25 - 2.25) / 4
    assert ran.after[1]["w"].item() == w
    # Round 2. Client 0: g - mu - s = w - 8 + 1 < 0, s_k = -1/2, mu = -1/2 - 1/2 + 1/2. Client 1: w + 4 - 1/2 + 1/2 > 0,
    # s_k = 1/2, mu = 1/2 + 1/2 + 1/2.
    assert [ran.after[2][f"{i}/smoo/mu"].item() for i in (0, 1)] == [-0.5, 1.5]
    moves = -0.5 * (w - 0.5 - 8), -0.5 * (w + 0.5 + 4)
    assert ran.after[2]["w"].item() == w + (3 * moves[0] + moves[1]) / 4


@every_engine
def test_the_step_alone_is_lengthened(engine):
    # Deltas 4 and -2 with mean 1 and mean length 3: the step is 3, FedCM's D comes from 1.
    ran = quadratic(Method.parse("fedcm(1)+normalized(at=step)"), (8.0, 1), (-4.0, 1), engine=engine)
    assert ran.after[1]["w"].item() == pytest.approx(3, rel=1e-15)
    assert ran.after[1]["fedcm/D"].item() == -1 / 0.5
    both = quadratic(Method.parse("fedcm(1)+normalized"), (8.0, 1), (-4.0, 1), engine=engine)
    assert both.after[1]["fedcm/D"].item() == pytest.approx(-3 / 0.5, rel=1e-15)


@every_engine
def test_cancelling_deltas_move_nothing_in_either_reading(engine):
    for at in ("update", "step"):
        ran = quadratic(Normalized(at), (8.0, 1), (-8.0, 1), engine=engine)
        assert ran.after[1]["w"].item() == 0


@every_engine
def test_fedexp_of_fedbug_by_hand(engine):
    # Deltas 4 and -2: mean 1, mean square 10, two clients: 10/(1 + 2). The paper's: 10/(2 * (1 + eps)).
    ran = quadratic(Method.parse("fedexp(1, factor=1, scaled=true, average=false)"), (8.0, 1), (-4.0, 1), engine=engine)
    assert ran.after[1]["served"].item() == pytest.approx(10 / 3, rel=1e-15)
    assert "fedexp/last" not in ran.after[1]


# -- sums ------------------------------------------------------------------------------------------------------------
def test_recipes_pass_their_parameters_on():
    assert Method.parse("fedgamma") == Method.parse("scaffold+sam(0.1)")
    assert Method.parse("fedsmoo(0.3, rho=0.2)") == Method.parse("feddyn(0.3)+smoo(0.2)")
    for recipe in ("fedsam", "mofedsam", "fedspeed", "fedgamma", "fedmrur"):
        sam = next(p for p in Method.parse(f"{recipe}(rho=0.5, adaptive=true, offset=0)").parts if p.name == "sam")
        assert (sam.rho, sam.adaptive, sam.offset) == (0.5, True, 0.0)
    assert Method.parse("fedmrur(at=step)").parts[-1] == Normalized("step")


def test_what_a_part_fills_follows_its_parameters():
    Method.parse("fedexp+normalized")
    Method.parse("nova+normalized(at=step)")
    Method.parse("ccvr+fedexp(average=false)")  # it serves the model itself


@pytest.mark.parametrize(
    ("sum", "says"),
    [
        (
            "fedexp+normalized(at=step)",
            "fedexp and normalized cannot be summed: both define the server step; keep one of them",
        ),
        (
            "fedmrur(at=step)+feddyn",
            "normalized and feddyn cannot be summed: both define the server step; keep one of them",
        ),
        ("nova+normalized", "nova and normalized cannot be summed: both aggregate the cohort; keep one of them"),
        (
            "ccvr+fedexp",
            "ccvr must come after fedexp: it refits the head of the model that is served; write fedexp+ccvr",
        ),
        ("sam+smoo", "sam and smoo cannot be summed: both decide where the gradient is taken; keep one of them"),
        ("fedsmoo+feddyn", "feddyn appears twice in the sum: keep one of them"),
        ("sam(-1)", "sam: rho must be a number of at least 0, not -1"),
        ("sam(offset=-1)", "sam: offset must be a number of at least 0, not -1"),
        ("sam(adaptive=2)", "sam: adaptive must be true or false, not 2"),
        ("smoo(dual=first)", "smoo: dual must be one of whole, last, not first"),
        ("normalized(at=once)", "normalized: at must be one of update, step, not once"),
        ("fedexp(factor=0)", "fedexp: factor must be a number above 0, not 0"),
        ("feddecorr(eps=0)", "feddecorr: eps must be a number above 0, not 0"),
    ],
)
def test_bad_sums_are_refused_in_one_line(sum, says):
    with pytest.raises(HoldfastError) as caught:
        Method.parse(sum)
    assert str(caught.value) == says


def test_the_servers_rate_is_refused_where_the_step_is_normalised():
    with pytest.raises(HoldfastError, match=r"^--server-lr 0.5 has no effect: normalized makes the server step itself"):
        train("normalized(at=step)", server_lr=0.5)
    train("normalized", server_lr=0.5, rounds=1)


# -- laws ------------------------------------------------------------------------------------------------------------
@every_engine
def test_strength_zero_is_feddyn(engine):
    smoo, plain = (train(sum, engine=engine, rounds=3).after[-1]["w"] for sum in (FedDyn(0.3) + Smoo(0.0), FedDyn(0.3)))
    assert torch.equal(smoo, plain)


@every_engine
def test_frozen_coordinates_keep_their_multiplier(engine):
    ran = train("freeze(1)+smoo(0.3)", engine=engine, rounds=2)
    head = slice(-15, None)
    for i in ran.history[0].cohort:
        mu = ran.after[-1][f"{i}/smoo/mu"]
        assert mu[head].tolist() == [0.0] * 15
        assert (mu[: head.start] != 0).all()
    assert math.isclose(float(ran.after[-1]["smoo/s"].norm()), 0.3, rel_tol=1e-12)


def test_tracing_the_step_changes_nothing(monkeypatch):
    monkeypatch.setattr(torch._inductor, "compile", lambda traced, inputs, **_: traced)
    traced, plain = (train("fedsmoo", engine="vector", rounds=2, compile=how).after[-1] for how in (True, False))
    for name, tensor in plain.items():
        torch.testing.assert_close(traced[name], tensor, rtol=1e-10, atol=1e-14)
