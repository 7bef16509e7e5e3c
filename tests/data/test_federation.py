"""A federation: public data, normalisation, and bad data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from helpers.exact_errors import raises_exactly
from holdfast import DataSet, federate
from holdfast.data.federation import choose_public

DIGITS = holdfast.load("digits")


def image_data(dtype: torch.dtype = torch.uint8) -> DataSet:
    x = torch.randint(0, 256, (40, 3, 4, 5), generator=torch.Generator().manual_seed(0)).to(dtype)
    y = torch.arange(40) % 4
    return DataSet("images", x, y, x[:10], y[:10], tuple("abcd"), (0.5, 0.25, 0.0), (0.5, 0.25, 2.0))


# -- public data --------------------
@pytest.mark.parametrize("split", ["iid", "dirichlet(0.1)", "shards(2)"])
def test_public_data_are_stratified_and_belong_to_no_client(split: str):
    federation = federate(DIGITS, split, clients=7, public=0.25)
    public, dealt = federation.public.numpy(), federation.deal.index
    assert sorted([*public, *dealt]) == list(range(1438)), "every sample once: held out, or dealt"
    share = np.bincount(DIGITS.y[public], minlength=10) / np.bincount(DIGITS.y, minlength=10)
    assert np.abs(share - 0.25).max() < 0.005
    assert federation.clients == 7


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60).map(np.array), st.floats(0.01, 0.99), st.integers(0, 99))
def test_of_every_class_the_same_share_and_at_least_one(labels: np.ndarray, fraction: float, seed: int):
    held = choose_public(labels, fraction, seed)
    assert len(set(held.tolist())) == len(held)
    for c in np.unique(labels):
        n, own = (labels == c).sum(), (labels[held] == c).sum()
        assert own == max(1, round(fraction * n))
    assert np.array_equal(held, choose_public(labels, fraction, seed))


def test_public_data_depend_on_the_seed_and_come_in_batches():
    one, other = (federate(DIGITS, "iid", public=0.1, seed=seed) for seed in (0, 1))
    assert not torch.equal(one.public, other.public)
    batches = list(one.public_batches(50))
    assert [len(b.y) for b in batches] == [50] * (len(one.public) // 50) + [len(one.public) % 50]
    assert torch.equal(torch.cat([b.y for b in batches]), DIGITS.y[one.public])
    torch.testing.assert_close(torch.cat([b.x for b in batches]), one.inputs(DIGITS.x[one.public]))
    assert all(bool(b.mask.all()) for b in batches)


def test_without_public_data_everything_is_dealt():
    federation = federate(DIGITS, "iid", clients=5)
    assert len(federation.public) == 0
    assert sorted(federation.deal.index) == list(range(1438))


@pytest.mark.parametrize("public", [-0.1, 1.0, 2.0])
def test_a_public_share_out_of_range(public: float):
    with raises_exactly(f"public must be a fraction in (0, 1), not {public:g}; use one such as 0.05"):
        federate(DIGITS, "iid", public=public)


# -- normalisation --------------------
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("lead", [(), (2, 5)])
def test_inputs_are_scaled_and_normalised_per_channel(dtype: torch.dtype, lead: tuple[int, ...]):
    federation = federate(image_data(dtype), "iid", clients=2)
    stored = federation.data.x[:10].reshape(*lead, *((10,) if not lead else ()), 3, 4, 5)
    found = federation.inputs(stored)
    assert found.dtype == torch.float32
    plain = stored.double() / (255 if dtype == torch.uint8 else 1)
    for c, (mean, std) in enumerate(((0.5, 0.5), (0.25, 0.25), (0.0, 2.0))):
        torch.testing.assert_close(
            found[..., c, :, :].double(), (plain[..., c, :, :] - mean) / std, rtol=1e-5, atol=1e-5
        )


def test_digits_come_out_standardised_and_arrays_too():
    x = federate(DIGITS, "iid").inputs(DIGITS.x)
    assert abs(float(x.mean())) < 1e-5
    assert float(x.std()) == pytest.approx(1, abs=1e-3)
    data = holdfast.from_arrays(torch.randn(200, 3) * torch.tensor([1.0, 50.0, 0.01]) + 7, torch.arange(200) % 2)
    x = federate(data, "iid", clients=2).inputs(data.x)
    torch.testing.assert_close(x.mean(0), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(x.std(0, unbiased=False), torch.ones(3), atol=1e-3, rtol=0)


def test_double_precision_reaches_the_inputs():
    federation = federate(image_data(), "iid", clients=2).to(torch.device("cpu"), torch.float64)
    exact = (federation.data.x[:3, 2].double() / 255) / 2
    assert torch.equal(federation.inputs(federation.data.x[:3])[:, 2], exact)


def test_samples_are_the_client_s_inputs_and_labels():
    federation = federate(image_data(), "iid", clients=4)
    index = torch.from_numpy(np.stack([federation.deal.client(i)[:3] for i in range(4)]))
    x, y = federation.samples(index, torch.zeros(4))
    assert x.shape == (4, 3, 3, 4, 5)
    for i in range(4):
        torch.testing.assert_close(x[i], federation.inputs(federation.data.x[index[i]]))
        assert torch.equal(y[i], federation.data.y[index[i]])


# -- bad data --------------------
@pytest.mark.parametrize("label", [-1, 4])
@pytest.mark.parametrize("which", ["y", "test_y"])
def test_a_label_without_a_class(label: int, which: str):
    data = image_data()
    labels = getattr(data, which).clone()
    labels[3] = label
    part = "training" if which == "y" else "test"
    with raises_exactly(
        f"the {part} labels of images are {min(label, 0)} to {max(label, 3)}, expected 0 to 3; "
        "number the classes from 0"
    ):
        federate(replace(data, **{which: labels}), "iid", clients=2)


@pytest.mark.parametrize("which", ["x", "test_x"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite(which: str, value: float):
    data = image_data(torch.float32)
    images = getattr(data, which).clone()
    images[3, 1, 2, 0] = value
    part = "training" if which == "x" else "test"
    with raises_exactly(f"the {part} data of images has NaN or infinite numbers, first in sample 3; clean it"):
        federate(replace(data, **{which: images}), "iid", clients=2)


def test_an_empty_test_set():
    data = image_data()
    with raises_exactly("the test data of images is empty; give at least one sample"):
        federate(replace(data, test_x=data.test_x[:0], test_y=data.test_y[:0]), "iid", clients=2)


def test_only_a_data_set_can_be_dealt():
    with raises_exactly("federate needs a data set, not a str; use load('digits') or from_arrays(x, y)"):
        federate("digits")


def test_a_federation_says_how_large_it_is():
    federation = federate(image_data(), "iid", clients=6)
    assert (federation.clients, federation.classes, federation.shape) == (6, 4, (3, 4, 5))
    assert federation.occupied.tolist() == list(range(6))
