"""Rounds computed by hand.

The model is one number ``w``. A client has a target ``b`` and n samples; a batch is one sample, so that it takes n
steps per epoch, each with the gradient ``g = w - b``. The learning rate is 1/2: a plain step goes half the way to b.
Every number below is exact in binary.
"""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from helpers.toys import ENGINES, Bowl, points, quadratic, server_round, train
from holdfast import Batch, DataSet, Method, Out, federate
from holdfast.parts.adaptive import FedAdagrad, FedAdam, FedYogi
from holdfast.parts.clip import Clip
from holdfast.parts.decay import Decay
from holdfast.parts.fedavgm import FedAvgM
from holdfast.parts.fedbug import FedBug, unfrozen
from holdfast.parts.fedcm import FedCM
from holdfast.parts.feddyn import FedDyn
from holdfast.parts.fedexp import FedExP
from holdfast.parts.fedlc import FedLC
from holdfast.parts.mean import Mean
from holdfast.parts.moon import Moon
from holdfast.parts.normalized import Normalized
from holdfast.parts.nova import Nova
from holdfast.parts.prox import Prox
from holdfast.parts.sam import Sam
from holdfast.parts.scaffold import Scaffold

every_engine = pytest.mark.parametrize("engine", ENGINES)


def values(ran, *names):
    """These numbers after every round but the start."""
    return [tuple(round[name].item() for name in names) for round in ran.after[1:]]


# -- the mean --------------------------------------------------------------------------------------------------------
@every_engine
def test_fedavg(engine):
    # b = 4, n = 1: w goes 0, 2.            delta = 2
    # b = -8, n = 3: w goes 0, -4, -6, -7.  delta = -7
    clients = (4.0, 1), (-8.0, 3)
    assert values(quadratic(None, *clients, engine=engine), "w") == [(2 / 4 - 7 * 3 / 4,)]
    assert values(quadratic(Mean("uniform"), *clients, engine=engine), "w") == [((2 - 7) / 2,)]
    assert values(quadratic(None, *clients, engine=engine, server_lr=0.5), "w") == [((2 / 4 - 7 * 3 / 4) / 2,)]
    assert values(quadratic(None, (8.0, 1), engine=engine, rounds=3, lr_decay=0.5), "w") == [(4,), (5,), (5.375,)]


# -- what a step adds to the gradient --------------------------------------------------------------------------------
@every_engine
@pytest.mark.parametrize(
    ("part", "w"),
    [
        # From w = 1 towards b = 9: g = -8.
        (None, 5 + 2),  # w = 5, then g = -4
        (Prox(0.5), 5 + 1),  # then g = -4 + (5 - 1)/2 = -2
        (Decay(0.5), 4.75 + 0.9375),  # g = -8 + 1/2 = -7.5, w = 4.75; then g = -4.25 + 2.375 = -1.875
        (Clip(1), 1.5 + 0.5),  # g = -1, twice
        (Clip(6), 4 + 2.5),  # g = -6, w = 4; then g = -5, short enough
        (Sam(0.5), 5.25 + 2.125),  # g at w - 1/2: -8.5, w = 5.25; then g at 4.75: -4.25
        (Decay(2) + Clip(6), 4 + -1.5),  # g = -8 + 2 = -6, w = 4; then g = -5 + 8 = 3
        (Clip(6) + Decay(2), 3 + 0),  # g = -6 + 2 = -4, w = 3; then g = -6 + 6 = 0
    ],
    ids=str,
)
def test_two_steps(part, w, engine):
    assert values(quadratic(part, (9.0, 2), start=1.0, engine=engine), "w") == [(w,)]


# -- SCAFFOLD --------------------------------------------------------------------------------------------------------
@every_engine
def test_scaffold(engine):
    # Round 1, all c = 0.  b = 0: stays, delta = 0, c_0 = 0.
    #                      b = 4: g = -4, w = 2; g = -2, w = 3; delta = 3, c_1 = (-4 - 2)/2 = -3 = -delta/(K*lr).
    #   w = 3/2, c = (0 - 3)/2.
    # Round 2 from 1.5.    b = 0: g = 1.5 - 0 - 1.5 = 0, twice; delta = 0, c_0 = 1.5.
    #                      b = 4: g = -2.5 + 3 - 1.5 = -1, w = 2; g = -2 + 3 - 1.5 = -0.5, w = 2.25; delta = 0.75,
    #                             c_1 = (-2.5 - 2)/2 = -2.25 = -3 + 1.5 - 0.75/1.
    #   w = 1.5 + 0.375, c = -1.5 + (1.5 + 0.75)/2.
    ran = quadratic(Scaffold(), (0.0, 2), (4.0, 2), engine=engine, rounds=2)
    found = values(ran, "w", "scaffold/c", "0/scaffold/c", "1/scaffold/c")
    assert found == [(1.5, -1.5, 0, -3), (1.875, -0.375, 1.5, -2.25)]


@every_engine
def test_scaffold_with_one_client_of_four(engine):
    # Whoever is drawn moves from 0 to 2 with g = -4. c = |S|/N * mean = (1/4) * (-4).
    (found,) = values(quadratic(Scaffold(), *[(4.0, 1)] * 4, engine=engine, cohort=1), "w", "scaffold/c")
    assert found == (2, -1)


@every_engine
def test_scaffold_under_fedbug(engine):
    # Two blocks, two steps, P = 1: step 1 moves the lower block only. Gradients are w - 4*id, and the model is (0, 8).
    # Round 1.  Client 0: lower 0, 0 (g = 0, 0).   upper 8 (frozen), then g = 8: 4.   c_0 = (0, 8).   delta (0, -4)
    #           Client 1: lower 2, 3 (g = -4, -2). upper 8 (frozen), then g = 4: 6.   c_1 = (-3, 4).  delta (3, -2)
    #   w = (1.5, 5), c = (-1.5, 6). With -delta/(K*lr) the upper half would be 4 and 2: half of what was seen.
    # Round 2.  Client 0: lower g = 1.5 - 0 - 1.5 = 0, twice: seen 1.5, 1.5. upper g = 5, 5 - 8 + 6 = 3: 3.5.
    #           Client 1: lower g = -2.5 + 3 - 1.5 = -1: 2; g = -2 + 3 - 1.5 = -0.5: 2.25. upper 1 - 4 + 6 = 3: 3.5.
    #   w = (1.875, 3.5), c_0 = (1.5, 5), c_1 = (-2.25, 1), c = (-0.375, 3).
    pair = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    nn.init.constant_(pair[0].weight, 0.0)
    nn.init.constant_(pair[1].weight, 8.0)
    method = FedBug(1.0) + Bowl() + Scaffold()
    settings = {"lr": 0.5, "batch": 1, "epochs": 1, "rounds": 2, "cohort": 2, "engine": engine}
    ran = train(method, points((0.0, 2), (0.0, 2)), pair, **settings)
    names = ("w", "scaffold/c", "0/scaffold/c", "1/scaffold/c")
    found = [[round[name].tolist() for name in names] for round in ran.after[1:]]
    assert found[0] == [[1.5, 5], [-1.5, 6], [0, 8], [-3, 4]]
    assert found[1] == [[1.875, 3.5], [-0.375, 3], [1.5, 5], [-2.25, 1]]


# -- FedDyn ----------------------------------------------------------------------------------------------------------
@every_engine
def test_feddyn(engine):
    # alpha = 1/2. Round 1, all h = 0.
    #   b = 0: g = 0, twice; delta = 0, h_0 = 0.
    #   b = 4: g = -4, w = 2; g = -2 + (2 - 0)/2 = -1, w = 2.5; delta = 2.5, h_1 = -1.25.
    #   h = -(1/2)/2 * 2.5 = -0.625, w = 0 + 1.25 + 0.625/(1/2) = 2.5: twice the mean delta.
    # Round 2 from 2.5.
    #   b = 0: g = 2.5, w = 1.25; g = 1.25 - 1.25/2 = 0.625, w = 0.9375; delta = -1.5625, h_0 = 0.78125.
    #   b = 4: g = -1.5 + 1.25 = -0.25, w = 2.625; g = -1.375 + 1.25 + 0.125/2 = -0.0625, w = 2.65625;
    #          delta = 0.15625, h_1 = -1.25 - 0.078125 = -1.328125.
    #   h = -0.625 - (1/4)*(-1.40625) = -0.2734375, w = 2.5 - 0.703125 + 0.546875 = 2.34375.
    ran = quadratic(FedDyn(0.5), (0.0, 2), (4.0, 2), engine=engine, rounds=2)
    found = values(ran, "w", "feddyn/h", "0/feddyn/h", "1/feddyn/h")
    assert found == [(2.5, -0.625, 0, -1.25), (2.34375, -0.2734375, 0.78125, -1.328125)]


@every_engine
def test_feddyn_counts_every_client_once_and_divides_by_all(engine):
    # Two of four clients are drawn, of 1 and 3 samples: delta = 2 after one step, 3.5 after three (lr 1/2, tiny alpha).
    alpha = 2.0**-40
    ran = quadratic(FedDyn(alpha), (4.0, 1), (4.0, 3), (4.0, 1), (4.0, 3), engine=engine, cohort=2)
    deltas = [3.5 if client in (1, 3) else 2.0 for client in ran.history[0].cohort]
    assert values(ran, "w")[0][0] == pytest.approx(sum(deltas) / 2 + sum(deltas) / 4, rel=1e-9)


# -- the aggregation -------------------------------------------------------------------------------------------------
@every_engine
def test_nova(engine):
    # b = 8, K = 1: delta = 4.  b = -8, K = 3: w goes -4, -6, -7.  p = 1/4, 3/4;  tau_eff = 1/4 + 9/4 = 2.5.
    # update = 2.5 * (1/4 * 4/1 + 3/4 * -7/3) = 2.5 * (1 - 1.75).
    ran = quadratic(Nova(), (8.0, 1), (-8.0, 3), engine=engine)
    assert values(ran, "w")[0][0] == pytest.approx(-1.875, rel=1e-12)


def test_nova_weighs_exactly():
    # Thirds are not exact in binary: p must be computed in the precision of the run.
    r = server_round([[3.0], [6.0]], n=[1, 2], K=[1, 1], weights=[1 / 3, 2 / 3])
    assert Nova().aggregate(r).item() == pytest.approx(5.0, rel=1e-14)


def test_normalized_has_the_mean_length_and_the_mean_direction():
    # Lengths 3 and 4, mean 3.5; the direction of (3, 4) is (0.6, 0.8). Samples do not count.
    r = server_round([[3.0, 0.0], [0.0, 4.0]], n=[1, 9], K=[1, 1], weights=[0.1, 0.9])
    assert Normalized().aggregate(r).tolist() == pytest.approx([2.1, 2.8], rel=1e-14)


@pytest.mark.parametrize("deltas", [[[1.0], [-1.0]], [[0.1 + 0.2], [-0.3]], [[0.0], [0.0]]], ids=str)
def test_normalized_of_deltas_that_cancel_is_their_mean(deltas):
    # 0.1 + 0.2 - 0.3 is 5.6e-17 in floats: noise, not a direction.
    r = server_round(deltas, n=[1, 1], K=[1, 1], weights=[0.5, 0.5])
    assert Normalized().aggregate(r).item() == (deltas[0][0] + deltas[1][0]) / 2


@every_engine
def test_normalized(engine):
    # Deltas 4 and -2: mean length 3, in the direction of their sum.
    assert values(quadratic(Normalized(), (8.0, 1), (-4.0, 1), engine=engine), "w") == [(3,)]


# -- the server step -------------------------------------------------------------------------------------------------
@every_engine
def test_fedavgm(engine):
    # b = 8, one step. Round 1: u = 4, m = 4, w = 0 + 2*4. Round 2: u = 0, m = 4/4, w = 8 + 2*1.
    # Round 3: u = -1, m = 1/4 - 1, w = 10 - 1.5.
    ran = quadratic(FedAvgM(beta=0.25, eta=2.0), (8.0, 1), engine=engine, rounds=3)
    assert values(ran, "w", "fedavgm/m") == [(8, 4), (10, 1), (8.5, -0.75)]


@every_engine
@pytest.mark.parametrize(
    ("part", "v"),
    [
        # eta = 1/2, beta1 = 1/2, tau = 1/2, so that v starts at 1/4. The first update is u = 2.
        (FedAdam(eta=0.5, beta1=0.5, beta2=0.75, tau=0.5), lambda v, u: 0.75 * v + 0.25 * u**2),
        (FedAdagrad(eta=0.5, beta1=0.5, tau=0.5), lambda v, u: v + u**2),
        (FedYogi(eta=0.5, beta1=0.5, beta2=0.75, tau=0.5), lambda v, u: v + 0.25 * u**2),  # v < u^2: it grows
    ],
    ids=["fedadam", "fedadagrad", "fedyogi"],
)
def test_adaptive(part, v, engine):
    u1 = (4.0 - 0.0) / 2
    m1, v1 = 0.5 * u1, v(0.25, u1)
    w1 = 0.5 * m1 / (math.sqrt(v1) + 0.5)
    u2 = (4.0 - w1) / 2
    m2, v2 = 0.5 * m1 + 0.5 * u2, v(v1, u2)
    w2 = w1 + 0.5 * m2 / (math.sqrt(v2) + 0.5)
    ran = quadratic(part, (4.0, 1), engine=engine, rounds=2)
    first, second = values(ran, "w", f"{part.name}/m", f"{part.name}/v")
    assert first == pytest.approx((w1, m1, v1), rel=1e-14)
    assert second == pytest.approx((w2, m2, v2), rel=1e-14)


def test_fedyogi_shrinks_where_the_updates_are_small():
    # v = 1/4 > u^2 = 1/16: v falls by (1 - beta2) * u^2 = 1/4 * 1/16.
    ran = quadratic(FedYogi(beta2=0.75, tau=0.5), (0.5, 1))
    assert values(ran, "fedyogi/v") == [(0.25 - 0.015625,)]


@pytest.mark.parametrize("part", [FedAdam(), FedAdagrad(), FedYogi()], ids=str)
def test_the_second_moment_starts_at_tau_squared(part):
    ran = quadratic(part, (4.0, 1))
    assert ran.after[0][f"{part.name}/v"].item() == 1e-3**2
    assert ran.after[0][f"{part.name}/m"].item() == 0


@every_engine
def test_fedexp(engine):
    # Deltas 4 and -2: mean 1, mean square 10. eta_g = 10 / (2 * (1 + 1)) = 2.5, w = 2.5; served (2.5 + 0)/2.
    # Round 2 from 2.5: deltas (8 - 2.5)/2 = 2.75 and (-4 - 2.5)/2 = -3.25, mean -0.25, mean square 9.0625.
    # eta_g = 9.0625 / (2 * (0.0625 + 1)) = 4.2647..., served is the mean of the last two.
    ran = quadratic(FedExP(eps=1.0), (8.0, 1), (-4.0, 1), engine=engine, rounds=2)
    w2 = 2.5 - 0.25 * 9.0625 / 2.125
    (first, second) = values(ran, "w", "served")
    assert first == (2.5, 1.25)
    assert second == pytest.approx((w2, (w2 + 2.5) / 2), rel=1e-14)


@every_engine
def test_fedexp_never_steps_shorter_than_fedavg(engine):
    # Equal deltas of 4: 16 / (2 * (16 + eps)) < 1.
    assert values(quadratic(FedExP(), (8.0, 1), (8.0, 1), engine=engine), "w", "served") == [(4, 2)]


@every_engine
def test_fedexp_counts_every_client_once(engine):
    # Deltas 4 (one sample) and -7 (three): mean -1.5, mean square (16 + 49)/2.
    ran = quadratic(FedExP(eps=1.0), (8.0, 1), (-8.0, 3), engine=engine)
    assert values(ran, "w") == [(pytest.approx(-1.5 * 32.5 / (2 * (2.25 + 1))),)]


# -- FedCM -----------------------------------------------------------------------------------------------------------
@every_engine
def test_momentum(engine):
    # alpha = 1/4, lr = 1/2. Round 1, D = 0: a step is w' = w - (w - b)/8.
    #   b = 8, K = 1: delta = 1.   b = -8, K = 3: w goes -1, -1.875, -2.640625.
    #   update = 1/4 - 3/4 * 2.640625, and the cohort's mean of lr*K is 1/4 * 1/2 + 3/4 * 3/2 = 1.25.
    # Round 2: a step is w' = w - (w - b)/8 - (3/4)/2 * D.
    u1 = 1 / 4 - 3 / 4 * 2.640625
    D1 = -u1 / 1.25
    short = u1 - (u1 - 8) / 8 - 3 / 8 * D1
    long = u1
    for _ in range(3):
        long = long - (long + 8) / 8 - 3 / 8 * D1
    u2 = (short - u1) / 4 + 3 / 4 * (long - u1)
    first, second = values(quadratic(FedCM(0.25), (8.0, 1), (-8.0, 3), engine=engine, rounds=2), "w", "fedcm/D")
    assert first == pytest.approx((u1, D1), rel=1e-14)
    assert second == pytest.approx((u1 + u2, -u2 / 1.25), rel=1e-14)


# -- FedBug ----------------------------------------------------------------------------------------------------------
def blocks(K: int, M: int, share: float) -> list[int]:
    return [int(unfrozen(torch.tensor(k), torch.tensor(K), M, share)) for k in range(1, K + 1)]


@pytest.mark.parametrize(
    ("share", "K", "M", "expected"),
    [
        (0.4, 10, 4, [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]),
        (0.4, 20, 4, [1, 1, 2, 2, 3, 3, 4, 4] + [4] * 12),
        (1.0, 8, 4, [1, 1, 2, 2, 3, 3, 4, 4]),
        (1.0, 3, 2, [1, 2, 2]),
        (0.5, 3, 3, [2, 3, 3]),  # k*M/(P*K) = 2k
        (0.1, 2, 5, [5, 5]),
        (0.2, 10, 1, [1] * 10),
    ],
)
def test_fedbug_unfreezes(share, K, M, expected):
    assert blocks(K, M, share) == expected


@given(percent=st.integers(1, 10_000), K=st.integers(1, 300), M=st.integers(1, 40))
def test_fedbug_unfreezes_as_exact_arithmetic_says(percent, K, M):
    share = Fraction(percent, 10_000)
    assert blocks(K, M, float(share)) == [min(M, math.ceil(k * M / (share * K))) for k in range(1, K + 1)]


@pytest.mark.parametrize(("share", "K", "M", "k", "m"), [(0.3, 12, 6, 3, 5), (0.06, 30, 9, 1, 5), (0.24, 60, 8, 9, 5)])
def test_fedbug_is_right_where_a_float_ceiling_is_wrong(share, K, M, k, m):
    assert math.ceil(k * M / (share * K)) == m + 1
    assert blocks(K, M, share)[k - 1] == m


@pytest.mark.parametrize("share", [1e-3, 1e-7, 1e-12])
def test_fedbug_with_a_tiny_share_unfreezes_at_once(share):
    assert blocks(5, 4, share) == [4] * 5


# -- FedLC -----------------------------------------------------------------------------------------------------------
@every_engine
@pytest.mark.parametrize("tau", [0.0, 0.5, 1.0])
def test_fedlc(tau, engine):
    # One client: three samples of class 0, none of class 1, one of class 2; x = 1, so that the logits are the weights.
    # At w = 0 the gradient is softmax(-margins) - frequencies; a class that is missing has the margin of one sample.
    y = torch.tensor([0, 0, 0, 2])
    x = torch.ones(4, 1, dtype=torch.float64)
    data = DataSet("three", x, y, x, y, ("a", "b", "c"), groups=torch.zeros(4, dtype=torch.int64))
    model = nn.Linear(1, 3, bias=False)
    nn.init.zeros_(model.weight)
    settings = {"lr": 0.5, "batch": 4, "epochs": 1, "rounds": 1, "cohort": 1, "engine": engine}
    ran = train(FedLC(tau), federate(data, "given", clients=1), model, **settings)
    e = [math.exp(-tau * 3**-0.25), math.exp(-tau), math.exp(-tau)]
    p = [value / sum(e) for value in e]
    expected = [-0.5 * (p[0] - 0.75), -0.5 * (p[1] - 0), -0.5 * (p[2] - 0.25)]
    assert ran.after[1]["w"].tolist() == pytest.approx(expected, rel=1e-14)


# -- MOON ------------------------------------------------------------------------------------------------------------
def penalty(moon: Moon, z: list[float], zg: list[float], zp: list[float], padding: int = 0) -> float:
    """Of a batch of one sample, and of ``padding`` rows that are not there."""
    rows = 1 + padding
    z, zg, zp = (torch.tensor([v] * rows, dtype=torch.float64) for v in (z, zg, zp))
    c = SimpleNamespace(teacher={"global": Out(zg, zg), "previous": Out(zp, zp)})
    return moon.penalty(c, Out(z, z), Batch(z, z, torch.arange(rows) < 1)).item()


@pytest.mark.parametrize("padding", [0, 3])
def test_moon(padding):
    # Cosines: s(z, zg) = 0.6, s(z, zp) = 0.8.
    near, old = math.exp(0.6 / 0.5), math.exp(0.8 / 0.5)
    found = penalty(Moon(mu=2.0, T=0.5), [5.0, 0.0], [3.0, 4.0], [8.0, 6.0], padding)
    assert found == pytest.approx(-2 * math.log(near / (near + old)), rel=1e-14)


def test_moon_at_the_global_model_is_mu_log_2():
    assert penalty(Moon(mu=3.0), [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]) == pytest.approx(3 * math.log(2), rel=1e-14)


@every_engine
def test_moon_does_nothing_while_the_previous_model_is_the_global_one(engine):
    plain, moon = (train(method, engine=engine, cohort=5, rounds=2).after for method in ("fedavg", "moon(10)"))
    torch.testing.assert_close(moon[1]["w"], plain[1]["w"], rtol=1e-12, atol=1e-14)
    assert (moon[2]["w"] - plain[2]["w"]).abs().max() > 1e-3


@every_engine
def test_moon_remembers_the_clients_own_model(engine):
    # b = 4, two steps from 0: the client ends at 3, the server (three clients of equal size) at 1.
    ran = quadratic(Moon(mu=0.0), (4.0, 2), (0.0, 2), (0.0, 2), engine=engine)
    assert values(ran, "w", "0/moon/previous", "1/moon/previous")[0] == pytest.approx((1, 3, 0))


def test_a_sum_in_python_is_the_sum_in_a_string():
    assert FedBug(0.4) + FedDyn(0.01) == Method.parse("fedbug(0.4)+feddyn(alpha=0.01)")
