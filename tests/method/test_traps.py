"""Mistakes seen in public implementations, each with a test of its name; and hooks that few parts fill."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from helpers.toys import (
    ENGINES,
    Anchor,
    Halving,
    Number,
    Poison,
    Progress,
    Quadratic,
    Refine,
    Still,
    points,
    quadratic,
    train,
)  # fmt: skip
from holdfast import Batch, HoldfastError, Out, Part
from holdfast.engines.batches import plan
from holdfast.method.part import parts
from holdfast.parts.adaptive import FedAdam
from holdfast.parts.ccvr import gaussian, upper
from holdfast.parts.clip import Clip
from holdfast.parts.fedbug import FedBug
from holdfast.parts.fedcm import FedCM
from holdfast.parts.feddecorr import FedDecorr
from holdfast.parts.feddyn import FedDyn
from holdfast.parts.fedexp import FedExP
from holdfast.parts.fnr import Fnr
from holdfast.parts.moon import Moon
from holdfast.parts.nova import Nova
from holdfast.parts.prox import Prox
from holdfast.parts.scaffold import Scaffold

every_engine = pytest.mark.parametrize("engine", ENGINES)


# -- SCAFFOLD --------------------------------------------------------------------------------------------------------
@every_engine
def test_scaffold_sign(engine):
    # With the right sign drift is gone: in round 2 clients with targets far apart end at the same model.
    # (MOON at strength zero keeps each client's model for us.)
    ran = quadratic(Scaffold() + Moon(0), (-8.0, 1), (0.0, 1), (40.0, 1), engine=engine, rounds=2)
    first, second = ([r[f"{i}/moon/previous"].item() for i in range(3)] for r in ran.after[1:])
    assert len(set(first)) == 3
    assert second == pytest.approx([second[0]] * 3, rel=1e-12)


@every_engine
def test_scaffold_divides_by_all_clients(engine):
    ran = quadratic(Scaffold(), *[(4.0, 1)] * 5, engine=engine, cohort=2)
    assert ran.after[1]["scaffold/c"].item() == pytest.approx(2 / 5 * -4)


@every_engine
def test_scaffold_works_as_much_as_fedavg(engine):
    # While all control variates are zero it is FedAvg, epochs and all.
    plain, scaffold = (train(method, engine=engine, rounds=1).after[1] for method in ("fedavg", "scaffold"))
    assert torch.equal(plain["w"], scaffold["w"])


@every_engine
@pytest.mark.parametrize(
    ("other", "c"),
    [
        # From 1 towards 9 in two steps. What it saw, not what the model did: -delta/(K*lr) would be
        (Clip(1), (-8 - 7.5) / 2),  # -1,
        (FedCM(0.5), (-8 - 6) / 2),  # -3.5,
        (Progress(), (-8 * 0.5 - 6 * 1) / 1.5),  # -5.
    ],
    ids=str,
)
def test_scaffold_averages_the_gradients_it_saw(other, c, engine):
    ran = quadratic(Scaffold() + other, (9.0, 2), start=1.0, engine=engine)
    assert ran.after[1]["0/scaffold/c"].item() == pytest.approx(c, rel=1e-14)


@every_engine
def test_a_round_without_movement_teaches_nothing(engine):
    # SCAFFOLD keeps its control variates; FedCM has no update to continue with.
    ran = quadratic(Still(after=1) + Scaffold() + FedCM(0.5), (4.0, 1), (8.0, 1), engine=engine, rounds=2)
    for name in ("w", "scaffold/c", "0/scaffold/c", "1/scaffold/c"):
        assert ran.after[2][name] == ran.after[1][name] != 0
    assert [r["fedcm/D"].item() for r in ran.after] == [0, -3, 0]  # -update/(lr*K) = -1.5/0.5


# -- deltas, never models --------------------------------------------------------------------------------------------
def served_at_the_optimum(part: Part, engine: str) -> list[float]:
    """Everyone is at its optimum, far from zero; clients of unequal size."""
    ran = quadratic(part, (100.0, 1), (100.0, 3), start=100.0, engine=engine, rounds=2)
    return [r["served"].item() for r in ran.after]


@every_engine
def test_nova_nobody_moves(engine):
    assert served_at_the_optimum(Nova(), engine) == [100, 100, 100]


@every_engine
def test_fedexp_nobody_moves(engine):
    assert served_at_the_optimum(FedExP(), engine) == [100, 100, 100]


# -- divisions by zero -----------------------------------------------------------------------------------------------
def test_feddecorr_features_that_do_not_vary():
    z = torch.ones(6, 4, dtype=torch.float64, requires_grad=True)
    batch = Batch(z, torch.zeros(6, dtype=torch.int64), torch.ones(6, dtype=torch.bool))
    penalty = FedDecorr(1.0).penalty(None, Out(z, z), batch)
    penalty.backward()
    assert penalty.item() == 0
    assert torch.isfinite(z.grad).all()


def test_ccvr_singular_covariance():
    # Two samples in three dimensions: rank one, on which Cholesky fails.
    z = torch.tensor([[1.0, 0.0, 2.0], [3.0, 0.0, 2.0]], dtype=torch.float64)
    mean, root = gaussian(torch.tensor(2.0, dtype=torch.float64), z.sum(0), upper(z.T @ z))
    assert mean.tolist() == [2, 0, 2]
    assert torch.allclose(root @ root, torch.diag(torch.tensor([2.0, 0.0, 0.0], dtype=torch.float64)), atol=1e-12)


def test_fnr_share_is_not_rounded_down():
    assert int(0.29 * 100) == 28
    assert Fnr(p=0.29).chosen(100) == 29


# -- FedDyn ----------------------------------------------------------------------------------------------------------
@every_engine
def test_feddyn_quadratic_term(engine):
    # From 8 towards 16, alpha = 1/2: g = -8, w = 12; g = -4 + (12 - 8)/2 = -2, w = 13. Decay would add w/2 instead.
    ran = quadratic(FedDyn(0.5), (16.0, 2), start=8.0, engine=engine)
    assert ran.after[1]["0/feddyn/h"].item() == -0.5 * 5


@every_engine
def test_feddyn_moves_twice_in_the_first_round(engine):
    ran = quadratic(FedDyn(0.01), (16.0, 1), (4.0, 1), engine=engine)
    assert ran.after[1]["w"].item() == pytest.approx(2 * (8 + 2) / 2, rel=1e-12)


# -- FedProx ---------------------------------------------------------------------------------------------------------
@every_engine
def test_prox_pulls_in_every_step(engine):
    # An exhausted iterator of global parameters would pull in the first step only, where there is nothing to pull.
    ran = quadratic(Prox(1.0), (16.0, 4), engine=engine)  # each step goes halfway: w' = w - (w - 16 + w)/2 = 8
    assert ran.after[1]["w"].item() == 8


# -- FedLC, FedExP ---------------------------------------------------------------------------------------------------
@every_engine
@pytest.mark.parametrize("tau", [0, 1, 100])
def test_fedlc_missing_class(tau, engine):
    ran = train(f"fedlc({tau})", engine=engine, cohort=5)  # client 0 lacks a class
    assert all(torch.isfinite(r["w"]).all() for r in ran.after)
    assert all(record.skipped == [] for record in ran.history)


@every_engine
def test_fedexp_cancelling(engine):
    ran = quadratic(FedExP(), (8.0, 1), (-8.0, 1), engine=engine, rounds=3)
    assert [r["w"].item() for r in ran.after] == [0, 0, 0, 0]


# -- server rates ----------------------------------------------------------------------------------------------------
@every_engine
def test_adam_no_bias_correction(engine):
    # u = 2. Bias correction would make the first step eta * u / (|u| + tau); tau inside the root would shift it.
    ran = quadratic(FedAdam(eta=0.1, beta1=0.9, beta2=0.99, tau=0.5), (4.0, 1), engine=engine)
    expected = 0.1 * 0.2 / (math.sqrt(0.99 * 0.25 + 0.01 * 4) + 0.5)
    assert ran.after[1]["w"].item() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("name", [name for name, cls in parts().items() if cls().fills("server_step")])
def test_server_rate_not_twice(name):
    with pytest.raises(HoldfastError, match=f"{name} makes the server step itself"):
        train(name, server_lr=0.5)


# -- frozen means frozen ---------------------------------------------------------------------------------------------
@every_engine
def test_frozen_blocks_get_no_decay(engine):
    # Nor momentum, nor a pull, nor a correction: the head of a body-only method keeps its bits.
    ran = train("freeze(1)+fedcm+scaffold+feddyn+prox+moon+clip(1)+decay(0.5)", engine=engine)
    head = slice(-15, None)  # 4 * 3 weights and 3 biases
    for r in ran.after[1:]:
        assert torch.equal(r["w"][head], ran.after[0]["w"][head])
        assert not torch.equal(r["w"][: head.start], ran.after[0]["w"][: head.start])


class Watched(nn.Linear):
    """Notes whether its weight is differentiated."""

    noted: list[bool]

    def forward(self, x: Tensor) -> Tensor:
        self.noted.append(self.weight.requires_grad)
        return super().forward(x)


def test_loop_does_not_differentiate_frozen_weights(monkeypatch):
    notes = []
    monkeypatch.setattr(Watched, "noted", notes, raising=False)
    model = nn.Sequential(Watched(3, 5), nn.Tanh(), Watched(5, 4), nn.Tanh(), nn.Linear(4, 3))
    train(FedBug(1.0), model=model, engine="loop", batch=100, epochs=6, cohort=1, rounds=1)
    steps = notes[4 : 4 + 12]  # four when the network is looked at, then two layers in each of six steps
    assert steps[0::2] == [True] * 6
    assert steps[1::2] == [False] * 2 + [True] * 4  # the second of three blocks is unfrozen after a third of the steps


# -- batches ---------------------------------------------------------------------------------------------------------
def batches(n: int, size: int, epochs: int = 1, steps: int | None = None, client: int = 3, t: int = 1) -> list:
    """The samples [e][s][b] of one client that owns 0, 1, ..., n - 1."""
    owned, who = torch.arange(n)[None], torch.tensor([client])
    found = plan(owned, torch.tensor([n]), who, words=(0, t, 0), batch=size, epochs=epochs, steps=steps)
    rows = [[i[m].tolist() for i, m in zip(*e, strict=True)] for e in zip(found.index[0], found.mask[0], strict=True)]
    assert all(len(epoch) == found.steps[0] for epoch in rows)
    return rows


@given(n=st.integers(1, 30), size=st.integers(1, 40), epochs=st.integers(1, 3))
def test_every_epoch_sees_every_sample_once(n, size, epochs):
    found = batches(n, size, epochs)
    assert len(found) == epochs
    for epoch in found:
        assert len(epoch) == -(-n // size)
        assert all(len(batch) == size for batch in epoch[:-1])
        assert sorted(chain(*epoch)) == list(range(n))


@given(n=st.integers(1, 30), size=st.integers(1, 40), steps=st.integers(1, 50))
def test_steps_pass_over_the_samples_again_and_again(n, size, steps):
    (found,) = batches(n, size, steps=steps)
    assert len(found) == steps
    once = -(-n // size)
    for start in range(0, steps - once + 1, once):
        assert sorted(chain(*found[start : start + once])) == list(range(n))


def test_every_pass_client_and_round_has_its_own_order():
    orders = [*batches(20, 20, epochs=2), *batches(20, 20, client=4), *batches(20, 20, t=2)]
    assert len({tuple(order[0]) for order in orders}) == 4


# -- a client that fails ---------------------------------------------------------------------------------------------
@every_engine
def test_an_update_that_is_not_finite_is_left_out(engine):
    ran = quadratic(Poison() + Scaffold(), (4.0, 1), (8.0, 1), (12.0, 1), engine=engine)
    assert ran.history[0].skipped == [1]
    assert ran.after[1]["w"].item() == (2 + 6) / 2
    assert ran.after[1]["scaffold/c"].item() == pytest.approx((-4 - 12) / 3)
    assert "1/scaffold/c" not in ran.after[1]


def test_a_round_without_any_finite_update_stops_the_run():
    with pytest.raises(HoldfastError, match="round 1: no client's update is finite"):
        train(Poison() + Quadratic(), points((4.0, 1), (4.0, 1)), Number(float("nan")), cohort=2)


# -- hooks that few parts fill ---------------------------------------------------------------------------------------
CLIENTS = (8.0, 1), (-8.0, 3)


@every_engine
def test_the_epoch_hook_runs_at_the_start_of_every_epoch(engine):
    # b = 8, one step per epoch: 0, 4, 6.
    # b = -8, three steps: g = 8, w = -4; g = 4 - 4 = 0, twice; new anchor, g = 4, w = -6; g = 2 - 2 = 0, twice.
    ran = quadratic(Anchor(), *CLIENTS, engine=engine, epochs=2)
    assert ran.after[1]["w"].item() == 6 / 4 - 6 * 3 / 4


@every_engine
def test_the_lr_hook_replaces_the_learning_rate(engine):
    # b = 8: rate 1/2, w = 4 (g = -8); rate 1/4, w = 5 (g = -4).
    # b = -8: three steps at 1/4, three at 1/8.
    w, seen = 0.0, []
    for rate in (1 / 4, 1 / 4, 1 / 4, 1 / 8, 1 / 8, 1 / 8):
        seen.append(rate * (w + 8))
        w -= rate * (w + 8)
    ran = quadratic(Halving() + Scaffold() + FedCM(1.0), *CLIENTS, engine=engine, epochs=2)
    update = 5 / 4 + w * 3 / 4
    rates = 0.75 / 4 + (3 / 4 + 3 / 8) * 3 / 4
    assert ran.after[1]["w"].item() == pytest.approx(update, rel=1e-14)
    assert ran.after[1]["0/scaffold/c"].item() == pytest.approx((-8 / 2 - 4 / 4) / 0.75, rel=1e-14)
    assert ran.after[1]["1/scaffold/c"].item() == pytest.approx(sum(seen) / (3 / 4 + 3 / 8), rel=1e-14)
    assert ran.after[1]["fedcm/D"].item() == pytest.approx(-update / rates, rel=1e-14)


@every_engine
@pytest.mark.parametrize(
    ("refine", "deltas"),
    [
        # The first trip ends at 4 and -7. Then, towards 8, one step per sample:
        (Refine(clients=1), (4, 6.125)),  # -7, 0.5, 4.25, 6.125
        (Refine(clients=2), (6, 6.125)),  # 4, 6
        (Refine(clients=2, epochs=2), (7, 8 - 15 / 64)),
        (Refine(clients=1, public=True), (4, 4.25)),  # there are two public samples
        (Refine(clients=2, epochs=0), (4, -7)),
        (Refine(clients=0), (4, -7)),
    ],
    ids=str,
)
def test_a_trip_goes_on_from_the_local_model(refine, deltas, engine):
    federation = replace(points(*CLIENTS), public=torch.tensor([0, 1]))
    settings = {"lr": 0.5, "batch": 1, "epochs": 1, "rounds": 1, "cohort": 2, "engine": engine}
    ran = train(Quadratic() + Scaffold() + refine, federation, Number(0.0), **settings)
    plain = train(Quadratic() + Scaffold(), federation, Number(0.0), **settings)
    assert ran.after[1]["w"].item() == deltas[0] / 4 + deltas[1] * 3 / 4
    for name in ("scaffold/c", "0/scaffold/c", "1/scaffold/c"):  # what ended with the first trip stays
        assert ran.after[1][name] == plain.after[1][name]
    for way in ("upload_bytes", "download_bytes"):  # a model of one number back, a goal there
        assert getattr(ran.history[0], way) == getattr(plain.history[0], way) + 8 * refine.clients


@every_engine
@pytest.mark.parametrize("steps", [None, 2])
def test_a_trip_counts_its_own_steps(steps, engine):
    # Three steps towards 8, at 1/3, 2/3 and all of the learning rate 1/2, whatever the first trip was.
    w = (-4.0 - 2.0) if steps == 2 else -7.0
    for rate in (1 / 6, 2 / 6, 3 / 6):
        w -= rate * (w - 8)
    ran = quadratic(Refine(growing=True), *CLIENTS, engine=engine, steps=steps)
    first = 6 if steps == 2 else 4
    assert ran.after[1]["w"].item() == pytest.approx(first / 4 + w * 3 / 4, rel=1e-12)
