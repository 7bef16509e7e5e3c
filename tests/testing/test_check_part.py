"""``check_part`` accepts parts that keep the laws, and says which law a part breaks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from helpers.places import ROOT
from holdfast import HoldfastError, Part, param
from holdfast.core.user_files import import_file
from holdfast.testing import LawBroken, check_part


@pytest.mark.parametrize("method", ["scaffold", "fedbug+moon", "ccvr", "fnr", "prox(0.1)+clip(1)+decay(0.01)"])
def test_parts_of_the_library_keep_the_laws(method):
    check_part(method)


def test_the_example_keeps_the_laws():
    example = import_file(ROOT / "examples" / "own" / "losspace.py")
    example.test_it_keeps_the_laws()
    check_part(example.LossPace(2.0), lr=0.05)


def lawless(**hooks: Callable) -> Part:
    """A part with these hooks."""
    return dataclass(frozen=True)(type("Lawless", (Part,), {"name": "toy-lawless", **hooks}))()


def grow(self, s, r):
    return {"m": torch.cat([s["m"], s["m"]])}


BREAKS = {
    "hooks do not change what they are given: part toy-lawless, hook direction: changes a vector that it is given in "
    "place; return a new tensor instead": {"direction": lambda self, c, g, w: (g.mul_(2), {})},
    "hooks do not change what they are given: part toy-lawless, hook direction: changes c.local['m'] in place; return "
    "a new tensor instead": {
        "begin": lambda self, c: {"m": c.zeros()},
        "direction": lambda self, c, g, w: (c.local["m"].add_(g).clone(), c.local),
    },
    "hooks do not change what they are given: part toy-lawless, hook absorb: returned state 'm' with shape [118] of "
    "float64, expected [59] of float64, as init_server made it": {
        "init_server": lambda self, w, N: {"m": torch.zeros_like(w)},
        "absorb": grow,
    },
    "random numbers come from c.key() alone: the same run twice gives two results (are there random numbers that do "
    "not come from c.key()?): the histories are not the same": {
        "direction": lambda self, c, g, w: (g * float(np.random.rand()), {})
    },
    "the loop and vector engines agree: part toy-lawless, hook direction: it reads a tensor as a number, which differs "
    "between clients: compute with tensors (test_check_part.py, line N)": {
        "direction": lambda self, c, g, w: (g / (1 + g.norm().item()), {})
    },
    "the loop and vector engines agree: loop and vector disagree after round 1: w differs by X, where its largest "
    "entry is X": {"penalty": lambda self, c, out, batch: out.logits.square().mean()},
    "if no client moves, the model does not move: the model moves though no client moves: server hooks must change "
    "nothing then": {"server_step": lambda self, s, r: 0.9 * (r.w + r.update)},
    "if no client moves, the model does not move: the served model moves though no client moves: server hooks must "
    "change nothing then": {"serve": lambda self, s, w: 0.9 * w},
}


@pytest.mark.parametrize("words", BREAKS)
def test_a_part_that_breaks_a_law(words):
    with pytest.raises(LawBroken) as error:
        check_part(lawless(**BREAKS[words]))
    found = re.sub(r"line \d+", "line N", re.sub(r"\d[\d.e-]*\d(?=, where|$)", "X", str(error.value)))
    assert found == f"toy-lawless breaks the law that {words}"
    assert isinstance(error.value, AssertionError)
    assert isinstance(error.value, HoldfastError)


def test_a_part_with_a_memory_outside_of_its_state_cannot_be_resumed():
    rounds: list[int] = []

    def aggregate(self, r):
        rounds.append(r.round)
        return r.mean(r.deltas) / len(rounds)

    def init_server(self, w, N):
        rounds.clear()
        return {}

    with pytest.raises(LawBroken) as error:
        check_part(lawless(aggregate=aggregate, init_server=init_server))
    assert str(error.value) == (
        "toy-lawless breaks the law that resuming changes nothing: a run that is resumed after round 1 differs from an "
        "uninterrupted one: the histories are not the same"
    )


def test_a_part_that_does_something_else_when_it_is_traced():
    def direction(self, c, g, w):
        return g * (1 if get_proxy_mode() is None else 2), {}

    with pytest.raises(LawBroken) as error:
        check_part(lawless(direction=direction))
    assert re.fullmatch(
        "toy-lawless breaks the law that a traced step agrees with the loop: loop and the traced step disagree after "
        r"round 1: w differs by [\d.e-]+, where its largest entry is [\d.e-]+",
        str(error.value),
    )


@dataclass(frozen=True)
class Neutral(Part):
    """Says that it is FedAvg at zero, and is not."""

    name = "toy-neutral"

    strength: float = param(0.5, "strength; 0 is FedAvg", low=0)

    def direction(self, c, g, w):
        return g * (1.5 + self.strength), {}


def test_a_part_that_is_not_fedavg_where_it_says_so():
    with pytest.raises(LawBroken) as error:
        check_part(Neutral())
    assert str(error.value) == (
        'toy-neutral breaks the law that at the value of which its documentation says "is FedAvg", a part is FedAvg: '
        "it is not FedAvg, after round 1: w is not the same, bit for bit"
    )
