"""What is searched: every number of every part says over which range, or why it is not."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.exact_errors import raises_exactly
from holdfast import Client, Config, Method, Part, param
from holdfast.core.params import SearchRange, search_range
from holdfast.method.config import FIELDS
from holdfast.method.part import parts
from holdfast.tuning.search_axis import SearchAxis
from holdfast.tuning.search_space import axis, check_wanted, search_from_texts, space_of, wanted_from_python

PARTS = {name: cls for name, cls in parts().items() if cls.__module__.startswith("holdfast.parts")}
NUMBERS = [
    pytest.param(name, f, id=f"{name}.{f.name}")
    for name, cls in PARTS.items()
    for f in fields(cls)
    if str(f.type).startswith(("int", "float", "tuple[float"))
]


def space(text: str, given: dict[str, Any] | None = None, search: tuple[str, ...] = ()) -> dict[str, SearchAxis]:
    wanted = search_from_texts(search)
    check_wanted(wanted, [text], given or {})
    found = space_of(text, Method.parse(text), Config().changed(**(given or {})), given or {}, wanted)
    return {a.name: a for a in found}


@pytest.mark.parametrize(("part", "f"), NUMBERS)
def test_every_number_of_every_part_states_its_range_or_why_it_has_none(part: str, f: Any):
    stated = f.metadata["search"]
    assert stated, f"{part}.{f.name}: add search=(low, high, 'log'), or the reason why it is not searched"
    if search_range(f):
        made = axis(f"{part}.{f.name}", f, f.default, None)  # within the bounds of the parameter
        assert made.holds(f.default), "the first trial has the usual values"


@pytest.mark.parametrize("name", [name for name, f in FIELDS.items() if search_range(f)])
def test_so_do_the_settings(name: str):
    assert "tunable" in FIELDS[name].metadata["roles"]
    assert axis(name, FIELDS[name], {"epochs": 5}.get(name, FIELDS[name].default), None).declared


def test_settings_come_first_then_the_parts():
    assert list(space("fedbug+prox")) == ["epochs", "batch", "lr", "fedbug.share", "prox.mu"]


def test_what_is_set_is_not_searched():
    assert list(space("fedbug(0.4)+prox(mu=0.1)", {"lr": 0.1})) == ["epochs", "batch"]
    assert "epochs" not in space("fedavg", {"steps": 3})
    assert list(space("feddc", {"lr": 0.1, "epochs": 1, "batch": 8})) == ["feddyn.alpha"]


def test_a_part_that_replaces_the_learning_rate_leaves_none_to_search():
    assert "lr" not in space("fedagg")
    assert "lr" in space("fedagg", search=("lr=0.1..1",))


def test_the_users_range_replaces_the_declared_one():
    found = space("prox", search=("prox.mu=0.1..2", "lr=0.01..1 log", "server_lr=0.5,1"))
    assert (found["prox.mu"].ends, found["prox.mu"].log, found["prox.mu"].declared) == ((0.1, 2.0), False, False)
    assert (found["lr"].ends, found["lr"].log) == ((0.01, 1.0), True)
    assert found["server_lr"].values == [0.5, 1.0]
    assert found["batch"].declared


def test_a_list_of_words_is_searched_too():
    assert space("fedbug", search=("fedbug.order=bottom-up,top-down",))["fedbug.order"].values == [
        "bottom-up",
        "top-down",
    ]


def test_texts_tuples_and_lists_from_python():
    found = wanted_from_python({"lr": (0.01, 1, "log"), "prox.mu": "0..1", "batch": [8, 16]})
    assert found == {"lr": SearchRange(0.01, 1, "log"), "prox.mu": SearchRange(0.0, 1.0), "batch": [8, 16]}


@dataclass(frozen=True)
class Unsearched(Part):
    """A user's part without a range."""

    name = "toy-unsearched"

    strength: float = param(0.5, "how much", low=0)

    def rate(self, c: Client) -> Tensor:
        return self.strength * torch.ones_like(c.lr)


def test_a_users_part_needs_no_range():
    assert "toy-unsearched.strength" not in space("toy-unsearched")
    assert space("toy-unsearched", search=("toy-unsearched.strength=0..1",))["toy-unsearched.strength"].ends == (0, 1)


ALL = {"lr": 0.1, "epochs": 1, "batch": 8}
WRONG = [
    (
        ("prox(0.1)", ALL),
        "nothing to search for prox(0.1): of what has a range (epochs, batch, lr, prox.mu) everything is set; leave "
        "one of them out, or search another: --search 'server_lr=0.3..3 log'",
    ),
    (
        ("prox", {}, ("prox.mu=-1..1",)),
        "the range -1..1 of prox.mu leaves its bounds, at least 0: narrow it",
    ),
    (
        ("momentum", {}, ("momentum.beta=0..1",)),
        "the range 0..1 of momentum.beta leaves its bounds, in [0, 1): narrow it",
    ),
    (("prox", {}, ("prox.mu=1..0.1",)), "the range 1..0.1 of prox.mu is empty: write the smaller number first"),
    (
        ("prox", {}, ("prox.mu=0..1 log",)),
        "the range 0..1 log of prox.mu must start above 0 on a logarithmic scale: raise its low end",
    ),
    (("prox", {}, ("prox.mu=0..1 cubic",)), "the scale of prox.mu must be one of linear, log, not cubic"),
    (
        ("prox", {}, ("prox.mu=a..b",)),
        "the search of prox.mu is a..b: expected LOW..HIGH, LOW..HIGH log or a list such as A,B,C",
    ),
    (("prox", {}, ("batch=1.5..4",)), "the range 1.5..4 of batch must have whole numbers as its ends"),
    (("prox", {}, ("batch=16",)), "the search of batch needs at least two values: set it instead"),
    (("prox", {}, ("batch=16,16",)), "the search of batch lists 16 twice: remove one"),
    (("prox", {}, ("lr",)), "--search lr: expected NAME=LOW..HIGH, such as 'lr=0.01..1 log'"),
    (("prox", {}, ("lr=0.1..1", "lr=0.1..2")), "lr is searched twice: write --search lr=... once"),
    (("prox", {"lr": 0.2}, ("lr=0.1..1",)), "lr is both searched and set to 0.2: leave one of them out"),
    (("prox(0.1)", {}, ("prox.mu=0..1",)), "prox.mu is both searched and set in prox(0.1): leave one of them out"),
    (("fedavg", {}, ("prox.mu=0..1",)), 
     "prox.mu cannot be searched: no method has the part prox; add one, such as prox"),
    (("fedprox", {}, ("fedprox.mu=0..1",)), 
     "fedprox.mu cannot be searched: fedprox stands for prox; name the part, such as prox.mu"),
    (("prox", {}, ("prox.nu=0..1",)), "unknown parameter 'nu' of prox; did you mean mu?"),
    (("prox", {}, ("pox.mu=0..1",)), "unknown part to search 'pox'; did you mean prox?"),
    (("prox", {}, ("batchsize=1..8",)), "unknown setting to search 'batchsize'; did you mean batch?"),
    (
        ("fedbug", {}, ("fedbug.order=0..1",)),
        "fedbug.order is not a number: search a list of values instead, such as fedbug.order=A,B",
    ),
    (
        ("prox", {}, ("rounds=1..8",)),
        "rounds cannot be searched, since scores would mean something else; these can: batchnorm, epochs, steps, "
        "batch, lr, lr_decay, lr_schedule, weight_decay, clip, optimizer, server_lr, class_weights, pos_weight",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "message"), WRONG, ids=lambda p: str(p)[:60])
def test_what_cannot_be_searched_is_one_line(asked: tuple[Any, ...], message: str):
    with raises_exactly(message):
        space(*asked)


def test_wrong_arguments_from_python():
    with raises_exactly("the search of lr is 0.1: expected (low, high), (low, high, 'log') or a list"):
        wanted_from_python({"lr": 0.1})


def test_edges_count_unless_they_are_limits_of_the_parameter():
    lr = SearchAxis("lr", 0.1, 0.001, 1.0, log=True)
    assert [lr.at_edge(v) for v in (0.001, 0.0012, 0.03, 0.9)] == [True, True, False, True]
    share = SearchAxis("fedbug.share", 0.4, 0.0, 1.0, limits=[0.0, 1.0])
    assert not share.at_edge(1.0)
    batch = SearchAxis("batch", 32, 8.0, 128.0, whole=True)
    assert [batch.at_edge(v) for v in (8, 9, 128)] == [True, False, True]
    assert not replace(batch, low=None, high=None, values=[8, 16]).at_edge(8)
