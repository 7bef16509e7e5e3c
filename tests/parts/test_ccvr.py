"""CCVR: its statistics against the pooled features, its refit against autograd, and what it serves when."""

from __future__ import annotations

import re
from dataclasses import asdict

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from helpers import reference
from helpers.toys import ENGINES, FEDERATION, Ran, assert_close, assert_same, mlp, train
from holdfast import HoldfastError, Method, run
from holdfast.core import rng
from holdfast.parts.ccvr import OWN, Ccvr, gaussian, refit, upper, virtual

every_engine = pytest.mark.parametrize("engine", ENGINES)
OFTEN = {"rounds": 5}  # with every=2: after rounds 2, 4 and the last


def raw(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sums that clients send of one class's features."""
    return torch.tensor(float(len(z)), dtype=torch.float64), z.sum(0), upper(z.T @ z)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pooled(w: Tensor) -> tuple[Tensor, Tensor]:
    """Everybody's features in one heap, by the network written down a second time; and the labels."""
    data, deal = FEDERATION.data, FEDERATION.deal
    mine = torch.from_numpy(np.concatenate([deal.client(i) for i in range(FEDERATION.clients)]))
    return reference.forward(reference.layers(w), data.x[mine])[1], data.y[mine]


# -- the statistics --------------------------------------------------------------------------------------------------
def surveyed(engine: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, dict[str, Tensor]]:
    """The model after a round, and the sums that the server gets for it."""
    seen = []

    def digest(self, s, r):
        seen.append((r.w, r.uploads))
        return s

    monkeypatch.setattr(Ccvr, "digest", digest)
    train("ccvr", engine=engine, rounds=1)
    return seen[0]


@every_engine
def test_merges_class_statistics_exactly(engine, monkeypatch):
    w, sums = surveyed(engine, monkeypatch)
    z, y = pooled(w)
    assert sums["count"].tolist() == torch.bincount(y, minlength=3).tolist()
    for c in range(3):
        mean, root = gaussian(sums["count"][c], sums["sum"][c], sums["squares"][c])
        own = z[y == c].numpy()
        np.testing.assert_allclose(mean, own.mean(0), rtol=0, atol=1e-13)
        np.testing.assert_allclose(root @ root, np.cov(own.T, ddof=1), rtol=0, atol=1e-12)
        np.testing.assert_allclose(root, root.T, rtol=0, atol=1e-15)


def test_singular_covariances():
    # Three samples in five dimensions: Cholesky fails, and the virtual features must stay in the plane of the samples.
    z = normal(3, 5)
    covariance = torch.from_numpy(np.cov(z.numpy().T, ddof=1))
    with pytest.raises(torch.linalg.LinAlgError):
        torch.linalg.cholesky(covariance)
    mean, root = gaussian(*raw(z))
    torch.testing.assert_close(root @ root, covariance, rtol=0, atol=1e-12)
    assert int(torch.linalg.matrix_rank(root)) == 2
    drawn, _ = virtual({k: v[None] for k, v in zip(("count", "sum", "squares"), raw(z), strict=True)}, 50, rng.key(1))
    plane = torch.linalg.qr((z[1:] - z[0]).T)[0]
    off = (drawn - mean) - (drawn - mean) @ plane @ plane.T
    assert float(off.abs().max()) < 1e-12
    assert float(drawn.std()) > 0.1


def test_a_single_sample_has_no_spread():
    z = normal(1, 4)
    mean, root = gaussian(*raw(z))
    torch.testing.assert_close(mean, z[0])
    assert not root.any()


def test_dead_features():
    mean, root = gaussian(*raw(torch.zeros(6, 4, dtype=torch.float64)))
    assert not mean.any()
    assert not root.any()
    head = normal(3, 4)
    assert torch.equal(refit(head, torch.zeros(6, 4, dtype=torch.float64), torch.zeros(6).long(), 5, 1.0), head)


def test_rounding_noise_is_not_spread():
    # A constant far from zero: the raw sums cancel to noise of either sign, the root of which would be 0.01 or NaN.
    z = torch.full((1000, 3), 1e6, dtype=torch.float64) + torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    _, root = gaussian(*raw(z))
    assert not root.any()
    z[:, 0] += normal(1000)
    _, root = gaussian(*raw(z))
    assert root[0, 0].item() == pytest.approx(float(z[:, 0].std()), rel=1e-3)
    assert float(root[1:, 1:].abs().max()) < 1e-2


# -- the virtual features --------------------------------------------------------------------------------------------
@given(st.lists(st.integers(0, 400), min_size=1, max_size=6).filter(any), st.integers(1, 50))
def test_as_many_features_as_the_class_has_samples(counts, features):
    n = torch.tensor(counts, dtype=torch.float64)
    sums = {"count": n, "sum": n[:, None] * 2, "squares": n[:, None] * 4}
    z, y = virtual(sums, features, rng.key(0))
    assert torch.equal(z, torch.full_like(z, 2.0))
    for c, found in enumerate(torch.bincount(y, minlength=len(counts)).tolist()):
        share = features * len(counts) * counts[c] / sum(counts)
        assert (found == 0) == (counts[c] == 0)
        assert found == 1 or abs(found - share) <= 0.5


def test_virtual_features_have_the_moments_they_were_drawn_from():
    z = normal(200, 3) @ normal(3, 3, seed=1) + normal(3, seed=2)
    sums = {k: v[None] for k, v in zip(("count", "sum", "squares"), raw(z), strict=True)}
    drawn, _ = virtual(sums, 100_000, rng.key(3))
    torch.testing.assert_close(drawn.mean(0), z.mean(0), rtol=0, atol=0.02)
    torch.testing.assert_close(drawn.T.cov(), z.T.cov(), rtol=0.03, atol=0.03)
    other, _ = virtual(sums, 100, rng.key(4))
    assert not torch.equal(other, drawn[:100])


# -- the refit -------------------------------------------------------------------------------------------------------
def test_one_step_by_hand():
    # z = 1 of class 0, z = -1 of class 1. L = 1/2, so that a step has length 2. From zero every probability is 1/2:
    # the gradient of row 0 is mean(-1/2 * 1, 1/2 * -1) = -1/2, of row 1 it is 1/2.
    z, y = torch.tensor([[1.0], [-1.0]], dtype=torch.float64), torch.tensor([0, 1])
    assert refit(torch.zeros(2, 1, dtype=torch.float64), z, y, 1, 1.0).tolist() == [[1], [-1]]
    assert refit(torch.zeros(2, 1, dtype=torch.float64), z, y, 1, 0.5).tolist() == [[0.5], [-0.5]]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_the_loss_falls_at_every_scale_of_features(scale):
    z, y = normal(90, 4) * scale + scale, torch.arange(90) % 3
    head = normal(3, 4, seed=1) / scale
    losses = [float(F.cross_entropy(z @ refit(head, z, y, steps, 1.0).T, y)) for steps in (0, 1, 10, 100, 3000)]
    assert losses == sorted(losses, reverse=True)
    final = refit(head, z, y, 3000, 1.0).requires_grad_()
    F.cross_entropy(z @ final.T, y).backward()
    assert float(final.grad.norm()) < 1e-6 * scale  # the optimum


def by_the_book(w: Tensor, t: int, features: int, steps: int) -> Tensor:
    """The calibrated model once more: moments by numpy, the root by SVD, gradients by autograd."""
    z, y = pooled(w)
    drawn, labels = [], []
    for c in range(3):
        own = z[y == c].numpy()
        _, size, axes = np.linalg.svd((own - own.mean(0)) / np.sqrt(len(own) - 1), full_matrices=False)
        root = torch.from_numpy(axes.T @ np.diag(size) @ axes)
        number = round(features * 3 * len(own) / len(z))
        key = rng.key(rng.key(rng.key(0, rng.SERVER, t), OWN), c)
        drawn.append(torch.from_numpy(own.mean(0)) + rng.normal(key, (number, 4), torch.float64) @ root)
        labels += [c] * number
    inputs = torch.cat([torch.cat(drawn), torch.ones(len(labels), 1, dtype=torch.float64)], 1)
    weight, bias = reference.layers(w)[2]
    head = ahead = torch.cat([weight, bias[:, None]], 1)
    length = 2 / float(torch.linalg.matrix_norm(inputs, 2)) ** 2 * len(labels)
    for k in range(steps):
        at = ahead.clone().requires_grad_()
        F.cross_entropy(inputs @ at.T, torch.tensor(labels)).backward()
        new = ahead - length * at.grad
        head, ahead = new, new + k / (k + 3) * (new - head)
    return torch.cat([w[:-15], head[:, :-1].flatten(), head[:, -1]])


@every_engine
def test_agrees_with_the_book(engine):
    ran = train("ccvr(20, steps=30)", engine=engine, rounds=2)
    w, served = ran.after[2]["w"], ran.after[2]["served"]
    assert float((served - w).abs().max()) > 0.1
    assert float((served - by_the_book(w, 2, 20, 30)).abs().max()) < 1e-10


# -- when and where --------------------------------------------------------------------------------------------------
def often(engine: str, **settings: object) -> Ran:
    return train("ccvr(20, every=2)", engine=engine, **(OFTEN | settings))


def test_engines_agree():
    loop, vector = (often(engine) for engine in ENGINES)
    for one, other in zip(loop.after, vector.after, strict=True):
        assert_close(other, one, 1e-10)
    assert [r.upload_bytes for r in loop.history] == [r.upload_bytes for r in vector.history]


@every_engine
def test_only_the_served_head_changes_and_only_when_due(engine):
    plain, ran = train("fedavg", engine=engine, **OFTEN), often(engine)
    for t, (one, other) in enumerate(zip(plain.after, ran.after, strict=True)):
        assert torch.equal(other["w"], one["w"])  # training never sees the new head
        changed = other["served"] != other["w"]
        assert not changed[:-15].any()
        assert bool(changed[-15:].all()) == (t in (2, 4, 5))
        assert bool(changed.any()) == (t in (2, 4, 5))


@every_engine
def test_resuming_changes_nothing(engine, tmp_path):
    whole = often(engine)
    for stop_after in (2, 3):
        left = iter([t == stop_after for t in range(1, 9)])
        often(engine, out=tmp_path / f"{stop_after}", stop=lambda left=left: next(left))
        rest = often(engine, out=tmp_path / f"{stop_after}", resume=True)
        for found, expected in zip(rest.after, whole.after[stop_after:], strict=True):
            assert_same(found, expected)
        clock = {"seconds": None}
        assert [asdict(r) | clock for r in rest.history] == [asdict(r) | clock for r in whole.history]


def test_behind_fedexp():
    alone, both = train("fedexp", rounds=2).after[2], train("fedexp+ccvr", rounds=2).after[2]
    assert torch.equal(both["served"][:-15], alone["served"][:-15])
    assert float((both["served"] - by_the_book(alone["served"], 2, 500, 100)).abs().max()) < 1e-9
    says = "ccvr must come after fedexp: it refits the head of the model that is served; write fedexp+ccvr"
    with pytest.raises(HoldfastError, match=f"^{re.escape(says)}$"):
        Method.parse("ccvr+fedexp")


def test_sums_with_everything_that_trains():
    names = "fedbug+scaffold+moon+sam+normalized+ccvr"
    plain, ran = (train(m, rounds=2).after[2] for m in (names.removesuffix("+ccvr"), names))
    assert torch.equal(ran["w"], plain["w"])
    assert not torch.equal(ran["served"], ran["w"])


def test_a_head_without_bias():
    model = nn.Sequential(*mlp()[:-1], nn.Linear(4, 3, bias=False)).double()
    ran = train("ccvr", model=model, rounds=1)
    assert float((ran.after[1]["served"] - ran.after[1]["w"])[-12:].abs().min()) > 0


def test_traffic_counts_the_statistics():
    plain, ours = (train(method, rounds=2).history for method in ("fedavg", "ccvr"))
    occupied, model = 4, len(torch.nn.utils.parameters_to_vector(mlp().parameters())) * 8
    assert ours[0].upload_bytes == plain[0].upload_bytes
    assert ours[1].upload_bytes - plain[1].upload_bytes == occupied * 3 * (1 + 4 + 4 * 5 // 2) * 8
    assert ours[1].download_bytes - plain[1].download_bytes == occupied * model


def test_features_that_overflow_leave_the_head_alone(monkeypatch):
    monkeypatch.setattr("holdfast.parts.ccvr.upper", lambda square: upper(square) * float("inf"))
    after = train("ccvr", rounds=1).after[1]
    assert torch.equal(after["served"], after["w"])


# -- does it help? ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("split", ["dirichlet(0.1)", "shards(2)"])
def test_calibration_helps_on_skewed_digits(split):
    settings = {"split": split, "rounds": 4, "epochs": 2, "model": "mlp(32)", "eval_every": 4}
    plain, ours = (run(method, **settings).summary["final"] for method in ("fedavg", "ccvr(100)"))
    assert ours > plain + 0.1


def test_the_default_is_after_the_last_round():
    assert [Ccvr().due(t, 3) for t in (1, 2, 3)] == [False, False, True]
    assert [Ccvr(every=2).due(t, 5) for t in range(1, 6)] == [False, True, False, True, True]
    assert Method.parse("ccvr") == Method((Ccvr(),))
