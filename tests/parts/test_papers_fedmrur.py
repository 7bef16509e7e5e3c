"""FedMRUR against its equations: the whole, its ablations, the hyperbolic penalty and the normalised aggregate."""

from __future__ import annotations

import math
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers import reference_papers as ref
from helpers.paper_problems import SETTINGS, assert_follows, every_engine, every_problem, network, start
from helpers.toys import FEDERATION, assert_close, assert_same, mlp, quadratic, server_round, train
from holdfast import Batch, HoldfastError, Method, Out
from holdfast.parts.hyperbolic import Hyperbolic, growth, lorentz_distance
from holdfast.parts.normalized import Normalized

every_space = pytest.mark.parametrize("space", ["hyperbolic", "euclidean", "input"])


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


# -- the whole and its ablations against the reference ---------------------------------------------------------------
OFF = {"alpha": 1.0, "rho": 0.0, "gamma": 0.0, "normalized": False}
ALL = {"alpha": 0.3, "rho": 0.1, "gamma": 0.5, "sigma": 2.0, "normalized": True}
MOMENTUM, SAM, PENALTY = "fedcm(0.3)", "sam(0.1)", "hyperbolic(0.5, 2)"


class Mrur:
    """The reference, which hands each round's update to the next; without ``normalized`` the mean is by samples."""

    def __init__(self, **how: object) -> None:
        self.how, self.D = how, None

    def __call__(self, layers: ref.Layers, batches: ref.Batches, lr: float, t: int, cohort: list[int]) -> Tensor:
        weights = None if self.how["normalized"] else ref.counts_of(batches)
        r = ref.fedmrur_round(layers, batches, lr, self.D, weights=weights, **self.how)
        self.D = r.D
        return r.w


@every_engine
@every_problem
@pytest.mark.parametrize(
    ("sum", "how"),
    [
        ("fedmrur(0.3, rho=0.1, gamma=0.5, sigma=2)", ALL),
        (f"{MOMENTUM}+{SAM}+{PENALTY}", ALL | {"normalized": False}),
        (f"{MOMENTUM}+{SAM}+normalized", ALL | {"gamma": 0.0}),
        (f"{MOMENTUM}+{SAM}", ALL | {"gamma": 0.0, "normalized": False}),
        (f"{PENALTY}+normalized", ALL | {"alpha": 1.0, "rho": 0.0}),
        (PENALTY, OFF | {"gamma": 0.5, "sigma": 2.0}),
        ("normalized", OFF | {"normalized": True}),
        ("fedmrur", {"alpha": 0.1, "rho": 0.05, "gamma": 0.005, "sigma": 1e4, "beta": 1.0, "normalized": True}),
    ],
    ids=["all", "no N", "no H", "neither", "H and N", "H", "N", "defaults"],
)
def test_agrees_with_the_reference(sum, how, problem, engine, monkeypatch):
    layers = start(problem, monkeypatch)
    ran = train(sum, FEDERATION, network(layers), engine=engine, **SETTINGS)
    assert_follows(ran, layers, Mrur(**how))


@every_engine
@every_space
@pytest.mark.parametrize("beta", [0.2, 5.0])
def test_every_space_agrees_with_the_reference(beta, space, engine):
    layers = ref.random_layers((3, 5, 4, 3), seed=0)
    sum = f"fedmrur(0.3, rho=0.1, gamma=0.5, sigma=2, beta={beta}, space={space})"
    ran = train(sum, FEDERATION, network(layers), engine=engine, **SETTINGS)
    assert_follows(ran, layers, Mrur(**ALL, beta=beta, space=space))


@every_engine
def test_the_servers_rate_does_not_enter_the_momentum(engine):
    layers = ref.random_layers((3, 5, 4, 3), seed=0)
    sum = "fedmrur(0.3, rho=0.1, gamma=0.5, sigma=2)"
    ran = train(sum, FEDERATION, network(layers), engine=engine, server_lr=0.5, **SETTINGS)
    assert_follows(ran, layers, Mrur(**ALL, server_lr=0.5))


@every_engine
def test_the_recipe_is_its_written_out_sum(engine):
    sums = ["fedmrur(0.3, rho=0.1, gamma=0.5, sigma=2)", "fedcm(0.3)+sam(0.1)+hyperbolic(0.5, 2)+normalized"]
    recipe, written = (train(sum, engine=engine, rounds=2).after[-1] for sum in sums)
    assert Method.parse(sums[0]) == Method.parse(sums[1])
    assert_same(recipe, written)


def test_leaving_a_part_out_is_an_ablation():
    whole = [part.name for part in Method.parse("fedmrur").parts]
    assert whole == ["fedcm", "sam", "hyperbolic", "normalized"]
    assert Method.parse("mofedsam+hyperbolic+normalized") == Method.parse("fedmrur")
    everything = train("fedmrur(gamma=0.5, sigma=2)", engine="loop", rounds=2).after[-1]["w"]
    for left_out in whole:  # every one of them does something
        sum = "+".join(name for name in whole if name != left_out).replace("hyperbolic", "hyperbolic(0.5, 2)")
        ablation = train(sum, engine="loop", rounds=2).after[-1]["w"]
        assert (ablation - everything).abs().max() > 1e-6, left_out


# -- the penalty -----------------------------------------------------------------------------------------------------
def penalty(part: Hyperbolic, z: Tensor, zg: Tensor, x: Tensor, mask: Tensor | None = None) -> Tensor:
    mask = torch.ones(len(z), dtype=torch.bool) if mask is None else mask
    c = SimpleNamespace(teacher={"global": Out(zg, zg)})
    return part.penalty(c, Out(z, z), Batch(x, torch.zeros(len(z), dtype=torch.int64), mask))


@every_space
@pytest.mark.parametrize("padding", [0, 2])
def test_the_penalty_is_the_papers(padding, space):
    z, zg, x = rand(5, 4), rand(5, 4, seed=1), rand(5, 2, 3, seed=2)
    hand = {
        "hyperbolic": ref.hyperbolic_penalty(z, zg, 0.3, 10.0, 0.7, naive=True),
        "euclidean": ref.euclidean_penalty(z, zg, 0.3, 10.0),
        "input": ref.hyperbolic_penalty(
            torch.cat([z, x.flatten(1)], 1), torch.cat([zg, x.flatten(1)], 1), 0.3, 10.0, 0.7
        ),
    }[space]
    part, more = Hyperbolic(0.3, 10.0, 0.7, space), (rand(padding, 4), rand(padding, 4, seed=3), rand(padding, 2, 3))
    rows = [torch.cat(pair) for pair in zip((z, zg, x), more, strict=True)]
    found = penalty(part, *rows, mask=torch.arange(5 + padding) < 5)
    assert float(found) == pytest.approx(float(hand), rel=1e-13)


@every_space
def test_the_penalty_is_least_and_flat_at_the_global_features(space):
    zg, x, part = 3 * rand(5, 4), rand(5, 2, 3), Hyperbolic(0.3, 10.0, space=space)
    z = zg.clone().requires_grad_()
    least = penalty(part, z, zg, x)
    assert float(least.detach()) == pytest.approx(0.3, rel=1e-15)
    assert torch.equal(torch.autograd.grad(least, z)[0], torch.zeros_like(zg))
    for seed, size in product(range(20), (1e-3, 1.0, 30.0)):
        assert penalty(part, zg + size * rand(5, 4, seed=seed), zg, x) > 0.3


@every_engine
@every_space
def test_at_the_global_model_the_penalty_pulls_nowhere(space, engine):
    # One step from w0: all features are the global ones.
    sums = ("fedavg", f"hyperbolic(100, 0.1, space={space})")
    plain, pulled = (train(sum, engine=engine, steps=1, rounds=1).after[-1] for sum in sums)
    assert_close(pulled, plain, 1e-12)


@pytest.mark.parametrize("beta", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 800.0])
def test_the_distance_is_exact(size, beta):
    for gap in (1e-9, 1e-6, 1e-2, 1.0):
        z = size * rand(6, 8)
        zg = z + size * gap * rand(6, 8, seed=1)
        truth = [ref.lorentz_decimal(a.tolist(), b.tolist(), beta) for a, b in zip(z, zg, strict=True)]
        assert lorentz_distance(z, zg, beta).tolist() == pytest.approx(truth, rel=1e-12)


@pytest.mark.parametrize("stretch", [1 + 1e-6, 1.001, 2.0])
@pytest.mark.parametrize("size", [1.0, 800.0, 1e5])
def test_the_distance_along_the_features_is_exact(size, stretch):
    # The hardest direction: of ||z - zg||^2 only the share beta/||z||^2 is left.
    z = rand(6, 8)
    z = size * z / z.norm(dim=1, keepdim=True)
    zg = z * stretch
    truth = [ref.lorentz_decimal(a.tolist(), b.tolist()) for a, b in zip(z, zg, strict=True)]
    assert lorentz_distance(z, zg, 1.0).tolist() == pytest.approx(truth, rel=1e-6 if size < 1e5 else 1e-2)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e3, 1e6, 1e9])
def test_no_distance_is_negative_up_to_rounding(size):
    z = size * rand(200, 8)
    along = z * (1 + rand(200, 1, seed=1) * torch.logspace(-12, 0, 200, dtype=torch.float64)[:, None])
    for zg in (along, z + rand(200, 8, seed=2)):
        rounding = 1e-15 * ((z - zg) ** 2).sum(1) if size > 1e7 else 0.0
        assert (lorentz_distance(z, zg, 1.0) >= -rounding).all()


@pytest.mark.parametrize("along", [False, True], ids=["any", "along"])
def test_float32_features_lose_no_digits_in_the_distance(along):
    # The printed form gives less than -0.01 here, for a true distance of about 1e-6.
    z = (800 * rand(50, 16) / rand(50, 16).norm(dim=1, keepdim=True)).float()
    zg = z * 1.001 if along else z + (2e-4 * rand(50, 16, seed=1)).float()
    truth = [ref.lorentz_decimal(a.tolist(), b.tolist()) for a, b in zip(z, zg, strict=True)]
    mean = sum(math.exp(d / 1e-6) for d in truth) / 50
    assert float(ref.lorentz_naive(z, zg).min()) < -0.01
    assert float(penalty(Hyperbolic(1.0, 1e-6), z, zg, z)) == pytest.approx(mean, rel=1e-6)


@every_engine
@every_space
@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_a_tiny_sigma_does_not_overflow(precision, space, engine):
    z, zg = rand(5, 4).requires_grad_(), rand(5, 4, seed=1)
    value = penalty(Hyperbolic(1.0, 1e-12, space=space), z, zg, rand(5, 3))
    assert torch.isfinite(value)
    assert torch.isfinite(torch.autograd.grad(value, z)[0]).all()
    assert value > penalty(Hyperbolic(1.0, 1e-11, space=space), z, zg, rand(5, 3))
    sum = f"hyperbolic(1e-30, 1e-6, space={space})+clip(1)"
    ran = train(sum, model=mlp(), engine=engine, precision=precision, rounds=2)
    assert torch.isfinite(ran.after[-1]["w"]).all()
    assert not any(record.skipped for record in ran.history)


def test_the_guard_leaves_the_exponential_alone_where_it_fits():
    x = torch.linspace(-1, 49.9, 500, dtype=torch.float64, requires_grad=True)
    y = growth(x)
    assert torch.equal(y, torch.exp(x))
    (slope,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(slope, y.detach(), rtol=1e-15, atol=0)
    at = torch.tensor([50 - 1e-9, 50 + 1e-9, 60.0], dtype=torch.float64, requires_grad=True)
    below, above, far = growth(at)
    assert float((above - below).detach()) == pytest.approx(2e-9 * math.exp(50), rel=1e-5)  # no jump
    (slope,) = torch.autograd.grad(far, at)
    assert float(slope[2]) == pytest.approx(math.exp(50))  # and the slope continues


# -- the aggregate ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(5))
def test_normalized_keeps_the_direction_and_has_the_mean_length(seed):
    deltas = rand(4, 9, seed=seed) * torch.tensor([[1.0], [2.0], [5.0], [0.1]], dtype=torch.float64)
    update = Normalized().aggregate(
        server_round(deltas.tolist(), n=[1, 9, 2, 4], K=[1] * 4, weights=[0.1, 0.6, 0.1, 0.2])
    )
    total = deltas.sum(0)
    assert float(update.norm()) == pytest.approx(float(deltas.norm(dim=1).mean()), rel=1e-14)
    assert float(update @ total) == pytest.approx(float(update.norm() * total.norm()), rel=1e-14)
    assert update.norm() >= deltas.mean(0).norm()
    torch.testing.assert_close(update, ref.normalized_aggregate(list(deltas)), rtol=1e-13, atol=0)


@every_engine
def test_normalized_moves_a_run_by_the_mean_length(engine):
    ran = train("normalized", engine=engine, rounds=1, cohort=4)
    plain = train("mean(uniform)", engine=engine, rounds=1, cohort=4)
    step, mean = (after[1]["w"] - after[0]["w"] for after in (ran.after, plain.after))
    assert float(step @ mean) == pytest.approx(float(step.norm() * mean.norm()), rel=1e-12)
    assert step.norm() > 1.01 * mean.norm()


@every_engine
@pytest.mark.parametrize(("precision", "off"), [("fp32", 0.4), ("fp64", 0.3)])
def test_deltas_that_cancel_but_for_the_rounding_of_the_model_do_not_move_it(precision, off, engine):
    # Targets at equal distances on both sides of the model: the deltas' sum is what 1024 + off/2 was rounded by.
    clients = (1024 + off, 1), (1024 - off, 1)
    ran = quadratic(Normalized(), *clients, start=1024.0, engine=engine, precision=precision)
    assert float(ran.after[1]["w"] - ran.after[0]["w"]) == pytest.approx(0, abs=1e-3)


# -- bad input -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("sum", "says"),
    [
        ("hyperbolic(-1)", "hyperbolic: gamma must be a number of at least 0, not -1"),
        ("hyperbolic(sigma=0)", "hyperbolic: sigma must be a number above 0, not 0"),
        ("hyperbolic(beta=0)", "hyperbolic: beta must be a number above 0, not 0"),
        ("hyperbolic(space=flat)", "hyperbolic: space must be one of hyperbolic, euclidean, input, not flat"),
        ("fedcm(0)", "fedcm: alpha must be a number in (0, 1], not 0"),
        ("fedcm(1.1)", "fedcm: alpha must be a number in (0, 1], not 1.1"),
        ("sam(-0.1)", "sam: rho must be a number of at least 0, not -0.1"),
        ("fedmrur(delta=1)", "unknown parameter 'delta' of fedmrur; did you mean beta?"),
        ("fedmrur+normalized", "normalized appears twice in the sum: keep one of them"),
        ("normalized+mean", "normalized and mean cannot be summed: both aggregate the cohort; keep one of them"),
    ],
)
def test_bad_regularisers_are_refused_in_one_line(sum, says):
    with pytest.raises(HoldfastError) as caught:
        train(sum)
    assert str(caught.value) == says
    assert "\n" not in says
