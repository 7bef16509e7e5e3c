"""Mean and standard deviation from the clients' sums, against NumPy's two passes over the pooled samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers.exact_errors import raises_exactly
from holdfast.data.deal import group_by_owner
from holdfast.data.federated_moments import client_sums, combine, federated_moments
from holdfast.data.federation import federate
from holdfast.data.sources import load
from holdfast.data.user_arrays import from_arrays, from_clients

RNG = np.random.default_rng(3)
SIZES = (1, 7, 0, 40, 5000, 3)  # of the clients: one has nothing, one more than a chunk


def clients_of(x: np.ndarray) -> list[np.ndarray]:
    return np.split(x, np.cumsum(SIZES)[:-1])


def pooled(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two passes in extended precision, per channel or feature."""
    wide = x.astype(np.longdouble) / (255 if x.dtype == np.uint8 else 1)
    axes = (0, *range(2, x.ndim))
    mean = wide.mean(axes, keepdims=True)
    return mean.ravel(), np.sqrt(((wide - mean) ** 2).mean(axes))


@pytest.mark.parametrize(
    ("offset", "scale", "rtol"), [(0, 1, 1e-12), (1e6, 1e-3, 1e-11), (-1e6, 0.25, 1e-12), (1e-9, 1e-9, 1e-12)]
)
def test_sums_of_clients_give_the_pooled_statistics(offset: float, scale: float, rtol: float) -> None:
    x = offset + scale * RNG.normal(size=(sum(SIZES), 3)) * [1, 5, 0.2]
    x += np.repeat(np.arange(len(SIZES)), SIZES)[:, None] * scale  # clients differ
    mean, std = combine(client_sums(torch.from_numpy(own)) for own in clients_of(x) if len(own))
    exact_mean, exact_std = pooled(x)
    np.testing.assert_allclose(np.array(mean, np.longdouble), exact_mean, rtol=1e-13, atol=1e-13 * scale)
    np.testing.assert_allclose(np.array(std, np.longdouble), exact_std, rtol=rtol)


@pytest.mark.parametrize("width", [5, 300])  # in float32 sums of squares are exact for short rows of pixels only
def test_pixels_are_exact_per_channel(width: int) -> None:
    x = RNG.integers(0, 256, (300, 3, 4, width), dtype=np.uint8)
    x[:, 1] = 200
    x[0, 1, 0, 0] = 201  # almost constant: the digits of the mean must not swallow the deviation
    deal = group_by_owner(RNG.integers(0, 20, 300), 21)
    mean, std = federated_moments(deal, 3, lambda index, owner: torch.from_numpy(x[index]))
    exact_mean, exact_std = pooled(x)
    np.testing.assert_allclose(np.array(mean, np.longdouble), exact_mean, rtol=1e-15)
    np.testing.assert_allclose(np.array(std, np.longdouble), exact_std, rtol=1e-9 if width == 300 else 1e-14)


def test_many_clients_at_a_time_and_one_by_one_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.data.federated_moments.NUMBERS", 6)  # two clients at a time
    x = torch.from_numpy(RNG.normal(50, 2, (sum(SIZES), 3)))
    deal = group_by_owner(np.repeat(np.arange(len(SIZES)), SIZES), len(SIZES) + 3)  # and nobody at the end
    together = federated_moments(deal, 3, lambda index, owner: x[torch.from_numpy(index)])
    alone = combine(client_sums(own) for own in torch.split(x, SIZES) if len(own))
    np.testing.assert_allclose(together, alone, rtol=1e-14)


def test_a_constant_feature_is_not_scaled() -> None:
    for value in (0.1, 1e6 / 3, 0.0, -7.0):
        x = np.full((sum(SIZES), 2), value)
        x[:, 1] = np.arange(len(x))
        _, std = combine(client_sums(torch.from_numpy(own)) for own in clients_of(x) if len(own))
        assert std[0] == 1.0
        assert std[1] == pytest.approx(x[:, 1].std(), rel=1e-12)


def test_only_the_clients_training_samples_enter() -> None:
    x, y = RNG.normal(size=(200, 2)), np.arange(200) % 2
    x[::7] += 100
    data = from_arrays(x, y, x[:50] + 1000, y[:50])
    assert (data.normalise, data.mean) == ("federated", ())
    fed = federate(data, "dirichlet(0.5)", 6, seed=1, public=0.2)
    held = np.setdiff1d(np.arange(200), fed.public.numpy())
    assert len(held) == len(fed.deal.index) == 160
    exact_mean, exact_std = pooled(x.astype(np.float32)[held])
    np.testing.assert_allclose(fed.data.mean, exact_mean.astype(float), rtol=1e-12)
    np.testing.assert_allclose(fed.data.std, exact_std.astype(float), rtol=1e-12)
    inputs = fed.inputs(fed.data.x[torch.from_numpy(held)])
    torch.testing.assert_close(inputs.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    leaking = federate(data, "iid", 4, public="test")
    np.testing.assert_allclose(leaking.data.mean, pooled(x.astype(np.float32))[0].astype(float), rtol=1e-12)


def test_clients_measure_what_they_see() -> None:
    x, y = np.zeros((400, 3)), np.arange(400) % 2
    fed = federate(from_arrays(x, y, x[:4], y[:4]), "iid+noise(2)", 4)
    seen = np.concatenate([fed._whole(torch.from_numpy(fed.deal.client(i)), torch.tensor(fed.deal.noise.sigma[i]))
                           for i in range(4)])  # fmt: skip
    np.testing.assert_allclose(seen.mean(0), np.zeros(3), atol=1e-5)
    np.testing.assert_allclose(seen.std(0), np.ones(3), atol=1e-5)


def test_every_shape_has_its_channels() -> None:
    y = np.arange(30) % 2
    for shape, channels in (((4,), 4), ((5, 6), 1), ((3, 5, 6), 3), ((2, 3, 4, 5), 2)):
        x = RNG.normal(3, 2, (30, *shape)).astype(np.float32)
        fed = federate(from_arrays(x, y, x, y), "iid", 3)
        mean, std = pooled(x[:, None] if len(shape) == 2 else x)
        assert len(fed.data.mean) == channels
        np.testing.assert_allclose(fed.data.mean, mean.astype(float), rtol=1e-12)
        np.testing.assert_allclose(fed.data.std, std.astype(float), rtol=1e-12)


def test_choices_of_a_data_set_by_name() -> None:
    plain, off = load("digits"), load("digits(normalise=off)")
    assert (plain.normalise, off.normalise, off.mean) == ("published", "off", ())
    assert federate(plain, "iid", 4).data.mean == plain.mean
    assert load("digits(normalise=computed)").normalise == load("digits(normalise=pooled)").normalise == "pooled"
    fed = federate(load("digits(normalise=federated)"), "dirichlet(0.1)", 12)
    np.testing.assert_allclose(fed.data.mean, plain.mean, rtol=1e-13)
    np.testing.assert_allclose(fed.data.std, plain.std, rtol=1e-13)
    with raises_exactly("digits: normalise must be one of published, federated, pooled, off, not always"):
        load("digits(normalise=always)")


def test_choices_for_arrays() -> None:
    x, y = RNG.normal(size=(20, 2)), np.arange(20) % 2
    known = {"mean": [0, 0], "std": [1, 2]}
    found = {choice: from_arrays(x, y, normalise=choice).normalise for choice in (True, False, "off", "pooled")}
    assert found == {True: "federated", False: "off", "off": "off", "pooled": "pooled"}
    assert from_arrays(x, y, **known).normalise == from_arrays(x, y, normalise="published", **known).normalise
    assert from_arrays(x, y, **known).std == (1.0, 2.0)
    assert from_clients([(x, y), (x, y)], normalise="pooled").mean
    with raises_exactly("normalise must be one of published, federated, pooled, off, not no; use one of them"):
        from_arrays(x, y, normalise="no")
    with raises_exactly("normalise=published needs mean and std; give both, or use normalise=federated"):
        from_arrays(x, y, normalise="published")
    with raises_exactly("normalise=pooled computes mean and std, but they are given; leave out one or the other"):
        from_arrays(x, y, normalise="pooled", **known)
