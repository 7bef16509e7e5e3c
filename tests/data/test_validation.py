"""Validation data: who gives it, that nobody trains on it, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.exact_errors import raises_exactly
from holdfast import federate, load
from holdfast.data.deal import Deal
from holdfast.data.validation import hold_out_of_clients

DIGITS = load("digits")


@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.floats(0.01, 0.99), st.integers(0, 5))
def test_a_fraction_of_every_client_is_held_out(sizes: list[int], fraction: float, seed: int) -> None:
    n = sum(sizes)
    deal = Deal(np.random.default_rng(seed).permutation(n), np.cumsum([0, *sizes]))
    expected = [min(int(fraction * size + 0.5), max(size - 1, 0)) for size in sizes]
    kept, held = hold_out_of_clients(deal, fraction, seed)
    assert held.sizes.tolist() == expected
    for i in range(len(sizes)):
        both = np.concatenate([kept.client(i), held.client(i)])
        assert sorted(both) == sorted(deal.client(i))
    again = hold_out_of_clients(deal, fraction, seed)
    assert np.array_equal(again[1].index, held.index)


def test_the_split_is_the_same_with_and_without_validation() -> None:
    plain, fed = (federate(DIGITS, clients=7, seed=3, validation=v) for v in (0.0, 0.2))
    assert fed.validation is not None
    for i in range(7):
        both = np.concatenate([fed.deal.client(i), fed.validation.client(i)])
        assert sorted(both) == sorted(plain.deal.client(i))


def test_a_pool_has_the_same_fraction_of_every_class() -> None:
    fed = federate(DIGITS, clients=7, validation=0.25, validation_from="pool", public=0.1)
    assert fed.validation is not None
    chosen = DIGITS.y.numpy()[fed.validation.index]
    rest = np.bincount(DIGITS.y.numpy()) - np.bincount(DIGITS.y.numpy()[fed.public.numpy()])
    assert np.abs(np.bincount(chosen) / rest - 0.25).max() < 0.01
    everyone = np.concatenate([fed.deal.index, fed.public.numpy(), fed.validation.index])
    assert sorted(everyone) == list(range(len(DIGITS.y)))


def test_samples_for_validation_are_those_that_clients_see() -> None:
    fed = federate(DIGITS, "dirichlet(0.3)+noise(0.5)", clients=4, validation=0.2)
    assert fed.validation is not None
    x, y = next(iter(fed.held_batches(fed.validation, 10_000)))
    at = 0
    for i in range(4):
        index = torch.from_numpy(fed.validation.client(i))
        assert fed.deal.noise is not None
        own, labels = fed.samples(index, torch.tensor(fed.deal.noise.sigma[i]))
        assert torch.equal(x[at : at + len(index)], own)
        assert torch.equal(y[at : at + len(index)], labels)
        at += len(index)
    assert at == len(y)


def test_a_node_keeps_its_own_clients_validation_and_the_server_all() -> None:
    fed = federate(DIGITS, clients=5, validation=0.2)
    assert fed.validation is not None
    node, server = fed.only([1, 3]), fed.only((), server=True)
    assert node.validation is not None
    assert server.validation is not None
    assert node.validation.sizes.tolist() == [n if i in (1, 3) else 0 for i, n in enumerate(fed.validation.sizes)]
    for small in (node, server):
        assert small.validation is not None
        for i in range(5):
            mine, whole = small.validation.client(i), fed.validation.client(i)
            assert not len(mine) or torch.equal(
                small.data.x[torch.from_numpy(mine)], fed.data.x[torch.from_numpy(whole)]
            )
    assert server.validation.sizes.tolist() == fed.validation.sizes.tolist()


def test_too_little_is_refused() -> None:
    with raises_exactly(
        "validation 0.001 of every client is not a single sample; use a larger fraction, or validation_from pool"
    ):
        federate(DIGITS, clients=20, validation=0.001)
