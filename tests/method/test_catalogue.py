"""What parts declare about themselves: the catalogue, what excludes what, and whose wish about the mean counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
from torch import Tensor

import helpers.toys  # noqa: F401 - defines parts
from holdfast import Client, HoldfastError, Method, Part, Round, Tensors
from holdfast.method.catalogue import GROUPS, MethodEntry, methods
from holdfast.method.part import parts
from holdfast.method.recipes import RECIPES


class Direction(Part):
    """A part that does nothing; its children are not discovered, since they are not direct subclasses of Part."""

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return g, {}


@dataclass(frozen=True)
class Shy(Direction):
    name = "toy-shy"
    excludes: ClassVar[dict[str, str]] = {"prox": "both hold the model back"}


@dataclass(frozen=True)
class Last(Direction):
    name = "toy-last"
    follows: ClassVar[dict[str, str]] = {"direction": "it has the last word"}


@dataclass(frozen=True)
class Uniform(Direction):
    name = "toy-uniform"
    uniform = True


@dataclass(frozen=True)
class Aggregator(Part):
    name = "toy-aggregator"
    internal = True

    def aggregate(self, r: Round) -> Tensor:
        return r.mean(r.deltas)


def library() -> list[MethodEntry]:
    return [entry for entry in methods() if entry.group != "yours"]


# -- the catalogue ---------------------------------------------------------------------------------------------------
def test_every_part_and_recipe_is_in_the_catalogue_once():
    names = [entry.name for entry in methods()]
    assert sorted(names) == sorted({*names})
    assert {*names} == {*parts(), *RECIPES}


def test_no_recipe_only_repeats_a_part():
    assert not RECIPES.keys() & parts().keys()


@pytest.mark.parametrize("entry", library(), ids=lambda entry: entry.name)
def test_every_method_of_the_library_says_what_it_is(entry: MethodEntry):
    assert entry.group in GROUPS
    assert 0 < len(entry.summary) <= 41
    assert not entry.summary.endswith(".")
    assert entry.citation[-4:].isdigit()
    assert len(entry.citation) <= 18
    assert Method.parse(entry.name) == (Method.parse(entry.sum) if entry.sum else Method())


def test_the_five_papers_are_a_group():
    assert {"fedbug", "fednlr", "fedagg", "fnr", "fedmrur"} <= {e.name for e in library() if e.group == "paper"}


def test_parts_from_elsewhere_are_the_users():
    assert {entry.name for entry in methods() if entry.group == "yours"} >= {"toy-bowl", "toy-quadratic"}


# -- what excludes what ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("sum", [(Shy(), "prox"), ("prox", Shy())], ids=["declared first", "declared last"])
def test_an_exclusion_holds_in_both_directions(sum):
    first, second = (Method.parse(s) if isinstance(s, str) else Method((s,)) for s in sum)
    names = f"{first.parts[0].name} and {second.parts[0].name}"
    with pytest.raises(HoldfastError) as caught:
        first + second
    assert str(caught.value) == f"{names} cannot be summed: both hold the model back; keep one of them"


def test_other_parts_are_not_excluded():
    assert str(Method((Shy(),)) + "scaffold") == "toy-shy + scaffold"


def test_a_part_that_follows_others_must_come_after_them():
    assert str(Method.parse("prox+scaffold") + Last()) == "prox + scaffold + toy-last"
    with pytest.raises(HoldfastError) as caught:
        Last() + "fedbug+prox"
    assert str(caught.value) == "toy-last must come after prox: it has the last word; write prox+toy-last"


# -- whose wish about the mean counts --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("method", "uniform"),
    [
        (Method(), False),
        (Method.parse("mean(samples)"), False),
        (Method.parse("mean(uniform)"), True),
        (Method.parse("feddyn"), True),
        (Method.parse("feddyn+mean(samples)"), False),
        (Method.parse("mean(samples)+fedexp"), False),
        (Method.parse("nova"), False),
        (Method.parse("nova+feddyn"), True),  # nova has no preference
        (Method.parse("normalized"), True),
        (Method((Uniform(),)), True),
        (Method((Aggregator(),)), False),
        (Method((Aggregator(), Uniform())), True),
    ],
    ids=str,
)
def test_who_decides_how_clients_are_weighted(method: Method, uniform: bool):
    assert method.uniform is uniform


def test_only_fnr_and_its_control_accept_test_data():
    assert {name for name, part in parts().items() if part.accepts_test_data} == {"finetune", "fnr"}
