"""Data that brings clients: how many there are, what they are called, and which split they get."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers.exact_errors import raises_exactly
from holdfast.data.dataset import DataSet
from holdfast.data.federation import federate
from holdfast.data.given_clients import names_to_show
from holdfast.data.sources import load
from holdfast.data.user_arrays import from_arrays, from_clients

HOSPITALS = ("Aachen", "Bonn", "Charité", "Dresden", "Essen")
X, Y = np.arange(120.0).reshape(60, 2), np.arange(60) % 2
WHERE = np.array(HOSPITALS)[np.arange(60) % 5]


def test_five_hospitals_are_five_clients() -> None:
    fed = federate(from_arrays(X, Y, X, Y, groups=WHERE))
    assert (fed.split, fed.clients) == ("given", 5)
    assert [fed.name_of(i) for i in range(5)] == list(HOSPITALS)
    for i, name in enumerate(HOSPITALS):
        assert np.array_equal(np.flatnonzero(name == WHERE), fed.deal.client(i))


def test_other_data_is_dealt_as_before() -> None:
    fed = federate(load("digits"))
    assert (fed.split, fed.clients, fed.client_names, fed.name_of(7)) == ("dirichlet(0.3)", 20, (), "7")
    assert federate(load("digits"), clients=4).clients == 4
    assert federate(load("digits"), "iid").clients == 20


def test_another_split_has_clients_without_names() -> None:
    data = from_arrays(X, Y, X, Y, groups=WHERE)
    fed = federate(data, "iid")
    assert (fed.clients, fed.client_names) == (20, ())
    assert federate(data, "iid", 3).name_of(2) == "2"
    assert federate(data, "given+noise(0.1)").name_of(2) == "Charité"


def test_a_wrong_number_is_refused() -> None:
    data = from_arrays(X, Y, X, Y, groups=WHERE, name="hospitals")
    remedy = "leave out clients, or use another split, such as iid"
    for number in (4, 20):
        with raises_exactly(f"clients is {number}, but hospitals brings 5: {remedy}"):
            federate(data, clients=number)
        with raises_exactly(f"clients is {number}, but hospitals brings 5: {remedy}"):
            federate(data, "given", number)
    assert federate(data, clients=5).clients == 5
    with raises_exactly("given: this data has no groups; use a split such as iid or dirichlet(0.3)"):
        federate(load("digits"), "given")


def test_a_client_may_be_empty() -> None:
    none = (X[:0], Y[:0])
    fed = federate(from_clients({"a": (X[:30], Y[:30]), "b": none, "c": (X[30:], Y[30:])}, test=(X, Y)))
    assert (fed.clients, fed.client_names, fed.deal.sizes.tolist()) == (3, ("a", "b", "c"), [30, 0, 30])
    listed = federate(from_clients([(X[:30], Y[:30]), none, (X[30:], Y[30:]), none], test=(X, Y)))
    assert (listed.clients, listed.name_of(3), listed.deal.sizes.tolist()) == (4, "3", [30, 0, 30, 0])
    # A client all of whose samples are test samples remains a client.
    alone = from_arrays(X[:5], [0, 0, 0, 0, 1], groups=["p", "q", "r", "s", "t"])
    assert federate(alone).clients == 5
    assert int((federate(alone).deal.sizes == 0).sum()) == 1


def test_numbers_are_names_too() -> None:
    fed = federate(from_arrays(X, Y, X, Y, groups=10 * (np.arange(60) % 3) + 10))
    assert fed.client_names == ("10", "20", "30")


def test_groups_of_a_data_set_without_names() -> None:
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    data = DataSet("plain", x, y, x, y, ("a", "b"), groups=torch.arange(60) % 4)
    assert (federate(data).split, federate(data).clients, federate(data).client_names) == ("given", 4, ())
    assert federate(data, "given", 6).deal.sizes.tolist() == [15] * 4 + [0] * 2


def test_no_two_clients_have_one_name() -> None:
    with raises_exactly("clients: two clients are called '1'; give every client its own name"):
        from_clients({1: (X, Y), "1": (X, Y)})
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    twice = DataSet("hospitals", x, y, x, y, ("a", "b"), groups=torch.arange(60) % 2, clients=("Bonn", "Bonn"))
    with raises_exactly("hospitals: two clients are called 'Bonn'; give every client its own name"):
        federate(twice)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("Bonn", "Ulm"), ("Bonn", "Ulm")),
        (("a\nb", "\x1b[31mred", "", "  c  d "), ("a b", "[31mred", "''", "c d")),
        (("a\nb", "a b"), ("a b (client 0)", "a b (client 1)")),
        (("x" * 50 + "1",), ("x" * 27 + "…" + "x" * 11 + "1",)),
        (("x" * 40,), ("x" * 40,)),
    ],
)
def test_names_fit_a_line(names: tuple[str, ...], shown: tuple[str, ...]) -> None:
    assert names_to_show(names) == shown
    assert all(len(name) <= 60 and name.isprintable() for name in names_to_show(names))
