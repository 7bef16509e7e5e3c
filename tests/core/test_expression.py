"""The language of sums: what is written is read back, and no text does worse than a clear error."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError, unknown
from holdfast.core.expression import Call, Value, parse, show

NAMES = st.from_regex(r"[A-Za-z_][\w.-]{0,8}", fullmatch=True)
TEXTS = st.text(max_size=8).filter(lambda text: not ("'" in text and '"' in text))
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = (
    NUMBERS | st.booleans() | st.none() | TEXTS | st.sampled_from(["true", "None", "FALSE", "samples", "a-b.c", "1"])
)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)
CALLS = st.builds(
    Call, NAMES, st.lists(VALUES, max_size=3).map(tuple), st.dictionaries(NAMES, VALUES, max_size=3)
)  # fmt: skip
NOISE = st.text(alphabet="ab1e.+-()[],='\" \n_é٣", max_size=24) | st.text(max_size=24)


def exact(calls: list[Call]) -> str:
    """With the types of all values: 1, 1.0 and true are equal in Python."""
    return repr(calls)


@given(st.lists(CALLS, min_size=1, max_size=3))
def test_a_sum_is_read_back_as_it_was(calls: list[Call]):
    for joint in ("+", " + ", "\n+\t"):
        assert exact(parse(joint.join(map(str, calls)))) == exact(calls)


@given(VALUES)
def test_a_value_is_read_back_as_it_was(value: Value):
    assert exact(parse(f"f(x={show(value)})")) == exact([Call("f", (), {"x": value})])


def finite(value: Value) -> bool:
    if isinstance(value, tuple):
        return all(map(finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def tried(text: str) -> list[Call] | str:
    """The sum, or the words of the error."""
    try:
        return parse(text)
    except HoldfastError as error:
        return str(error)


@given(NOISE)
def test_any_text_is_a_sum_or_a_clear_error(text: str):
    found = tried(text)
    if isinstance(found, str):
        assert found.startswith("cannot read")
    elif all(finite((*call.args, *call.kwargs.values())) for call in found):
        assert exact(parse("+".join(map(str, found)))) == exact(found)


@given(CALLS, st.integers(0, 60), st.sampled_from(list("()[],=+'\" 1x")))
def test_one_wrong_character_is_a_sum_or_a_clear_error(call: Call, at: int, mark: str):
    text = str(call)
    for changed in (text[:at] + mark + text[at:], text[:at] + text[at + 1 :], text[:at]):
        found = tried(changed)
        assert isinstance(found, list) or found.startswith("cannot read")


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("fedavg", [Call("fedavg")]),
        ("a()", [Call("a")]),
        (" a ( 1 , ) ", [Call("a", (1,))]),
        ("a(-1, +2, .5, 1e-3, 3.)", [Call("a", (-1, 2, 0.5, 1e-3, 3.0))]),
        ("a(x=[1, [2, b]], y='c d')", [Call("a", (), {"x": (1, (2, "b")), "y": "c d"})]),
        ("a([])", [Call("a", ((),))]),
        ("mnist-cnn+b", [Call("mnist-cnn"), Call("b")]),
        ("a(TRUE, None, 'true')", [Call("a", (True, None, "true"))]),
        ("a(b)+c(d=e)", [Call("a", ("b",)), Call("c", (), {"d": "e"})]),
    ],
)
def test_reading(text: str, calls: list[Call]):
    assert exact(parse(text)) == exact(calls)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fedbug(", "the end"), ("fedbug)", "')'"), ("a++b", "'+'"), ("", "a name"), ("a b", "'b'"), ("a+1", "'+1'"),
        ("a(1 2)", "','"), ("a(b=1, 2)", "named"), ("a(b=1, b=2)", "twice"), ("a(#)", "'#)'"), ("a(1x)", "1x"),
        ("a(b=)", "a value"), ("a([1)", "','"), ("a(]", "']'"),
    ],
)  # fmt: skip
def test_an_error_says_what_was_expected_or_found(text: str, expected: str):
    with pytest.raises(HoldfastError) as caught:
        parse(text)
    assert repr(text) in str(caught.value)
    assert expected in str(caught.value)


@pytest.mark.parametrize("text", ["a(" + "9" * 5000 + ")", "a(" + "[" * 3000 + "]" * 3000 + ")"], ids=["long", "deep"])
def test_absurd_input_is_an_ordinary_error(text: str):
    with pytest.raises(HoldfastError):
        parse(text)


@given(NAMES, st.lists(NAMES, min_size=1, unique=True))
def test_an_unknown_name_is_met_with_names_that_exist(name: str, known: list[str]):
    message = str(unknown("part", name, known))
    assert repr(name) in message
    assert any(other in message for other in known)
