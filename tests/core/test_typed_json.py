"""Dataclasses as JSON: what is written is read back, and anything else is refused with its place in the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast.core.typed_json import OMIT_NONE, JsonMismatch, from_json, to_json


@dataclass(frozen=True)
class Leaf:
    name: str
    weight: float | None = None


@dataclass(frozen=True, kw_only=True)
class Tree:
    age: int
    alive: bool = True
    leaves: list[Leaf]
    rings: list[list[float | None]] = field(default_factory=list)
    nests: dict[str, Leaf] = field(default_factory=dict)
    notes: Any = None
    fallen: Leaf | None = field(default=None, metadata=OMIT_NONE)


TREE = Tree(age=3, leaves=[Leaf("a", 0.5), Leaf("b")], rings=[[1, 2.5, None], []], nests={"low": Leaf("c")}, notes=[1])
JSON = {
    "age": 3,
    "alive": True,
    "leaves": [{"name": "a", "weight": 0.5}, {"name": "b", "weight": None}],
    "rings": [[1, 2.5, None], []],
    "nests": {"low": {"name": "c", "weight": None}},
    "notes": [1],
}


def test_what_is_written_is_read_back():
    assert to_json(TREE) == JSON, "a field that may be left out is, while it is None"
    assert list(to_json(TREE)) == list(JSON), "in the order of the fields"
    assert from_json(Tree, JSON) == TREE
    fallen = Tree(age=1, leaves=[], fallen=Leaf("d", 1))
    assert from_json(Tree, to_json(fallen)) == fallen


def test_fields_with_defaults_may_be_missing():
    assert from_json(Tree, {"age": 1, "leaves": []}) == Tree(age=1, leaves=[])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "the file must be an object"),
        ({"leaves": []}, "age is missing"),
        ({"age": 1, "leaves": [], "height": 2}, "height is unknown"),
        ({"age": 1.5, "leaves": []}, "age must be a whole number, not 1.5"),
        ({"age": True, "leaves": []}, "age must be a whole number, not True"),
        ({"age": None, "leaves": []}, "age must be a whole number, not None"),
        ({"age": 1, "alive": 1, "leaves": []}, "alive must be true or false, not 1"),
        ({"age": 1, "leaves": {}}, "leaves must be a list"),
        ({"age": 1, "leaves": ["a"]}, "leaves[0] must be an object"),
        ({"age": 1, "leaves": [{"name": "a"}, {}]}, "leaves[1].name is missing"),
        ({"age": 1, "leaves": [{"name": 7}]}, "leaves[0].name must be a text, not 7"),
        ({"age": 1, "leaves": [], "rings": [[1], [1, "2"]]}, "rings[1][1] must be a number, not '2'"),
        ({"age": 1, "leaves": [], "rings": [[True]]}, "rings[0][0] must be a number, not True"),
        ({"age": 1, "leaves": [], "nests": []}, "nests must be an object"),
        ({"age": 1, "leaves": [], "nests": {"low": {"name": "a", "colour": 1}}}, "nests.low.colour is unknown"),
    ],
)
def test_anything_else_is_refused(value: Any, says: str):
    with pytest.raises(JsonMismatch) as error:
        from_json(Tree, value)
    assert str(error.value) == says
