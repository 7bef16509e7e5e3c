"""Mistakes of the first hour give one line that says what to do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from torch import Tensor, nn

import holdfast
from holdfast import HoldfastError, Method


@dataclass(frozen=True)
class Misspelt(holdfast.Part):
    name = "toy-misspelt"

    def directoin(self, c: holdfast.Client, g: Tensor, w: Tensor) -> tuple[Tensor, holdfast.Tensors]:
        return g, {}


@dataclass(frozen=True)
class Nameless(holdfast.Part):
    def direction(self, c: holdfast.Client, g: Tensor, w: Tensor) -> tuple[Tensor, holdfast.Tensors]:
        return g, {}


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (
            lambda: Method((Misspelt(),)),
            "^the part Misspelt fills no hook: define at least one, and check the spelling of its methods$",
        ),
        (lambda: Method((Nameless(),)), '^the part Nameless has no name: add name = "..." to the class$'),
        (lambda: holdfast.federate("digits"), "load"),
        (lambda: holdfast.run("fedavg", holdfast.load("digits")), "federate"),
        (
            lambda: holdfast.run("fedavg", holdfast.federate(holdfast.load("digits")), nn.Linear),
            "^the model Linear needs in_features, out_features, but is called with shape and classes at most: give the "
            "others defaults, or use a function or an instance that needs none$",
        ),
        (
            lambda: holdfast.run("fedavg", holdfast.federate(holdfast.load("digits")), 3),
            "^the model is of type int: pass an nn.Module, a function that makes one, or a name$",
        ),
        (lambda: Method.parse("FedAvg"), "^unknown method 'FedAvg'; did you mean fedavg[?]$"),
        (lambda: Method.parse("fedbug(0.4"), r"^cannot read 'fedbug\(0.4': expected ',' or '\)', found the end$"),
        (
            lambda: Method.parse("fednlr(mu=0.5)"),
            r"^fednlr: mu must be a number or a list of numbers above 1, not \[0.5\]$",
        ),
        (lambda: holdfast.Config(public="foo"), r"a number in \[0, 1\) or test"),
        (lambda: holdfast.run("fedavg", public="test"), "test data"),
    ],
)
def test_one_line_says_what_to_do(mistake, words):
    with pytest.raises(HoldfastError, match=words) as error:
        mistake()
    assert "\n" not in str(error.value)


def test_a_part_and_a_string_add_up():
    assert str(holdfast.Method.parse("prox(0.1)").parts[0] + "scaffold") == "prox(mu=0.1) + scaffold"


def test_two_clients_at_least_are_drawn_from_few():
    assert [holdfast.Config(clients=n).cohort_size for n in (1, 2, 6, 20, 100)] == [1, 2, 2, 5, 10]


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_images_with_channels_last_are_recognised(dtype):
    data = holdfast.from_arrays(np.ones((40, 9, 9, 3), dtype), np.arange(40) % 2)
    assert data.x.shape[1:] == (3, 9, 9)


def test_what_is_printed_is_short():
    data = holdfast.load("digits")
    assert len(repr(data)) < 120
    assert len(repr(holdfast.federate(data))) < 200
