"""The page of combinations is what running every pair gives."""

from __future__ import annotations

import pytest

from helpers.brief import brief
from helpers.declared import assert_declared, watched
from helpers.places import ROOT
from holdfast.comparison.pairs import attempt, names, page, pairs, trust_table, unlike_their_methods
from holdfast.method.method import Method

PAGE = ROOT / "docs" / "combinations.md"


def refusals(text: str) -> dict[str, set[str]]:
    """What each method cannot be summed with, by the page."""
    table = text.partition("## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    return {name: set(others.split(", ")) - {"-"} for name, others in rows}


def test_the_page_lists_every_method():
    assert list(refusals(PAGE.read_text(encoding="utf-8"))) == names()
    assert (len(names()), len(pairs())) == (33, 528)


@pytest.mark.parametrize("name", names())
def test_the_page_is_what_running_the_pairs_gives(name, monkeypatch):
    """And what travels in each pair is what its parts declare."""
    seen = watched(monkeypatch)
    text = PAGE.read_text(encoding="utf-8")
    listed = refusals(text)[name]
    for first, second in [pair for pair in pairs() if pair[0] == name]:
        seen.sent, seen.kept = set(), set()
        why = attempt(brief(first), brief(second))
        assert bool(why) == (second in listed), f"{first}+{second}: {why or 'runs'}"
        if not why:
            assert_declared(Method.parse(f"{first}+{second}"), seen)
        else:
            assert f"- {why}: " in text
            assert f"`{first}+{second}`" in text


def test_the_page_says_what_every_method_sends_and_keeps():
    assert PAGE.read_text(encoding="utf-8").endswith(f"\n{trust_table()}")


def test_pairs_that_are_unlike_their_methods_are_found(monkeypatch):
    """FedDyn needs the total of the deltas, which a mean by samples does not give."""
    monkeypatch.setattr("holdfast.comparison.pairs.names", lambda: ["feddyn", "mean", "median"])
    assert unlike_their_methods() == {
        ("feddyn", "mean"): "secure aggregation: feddyn looks at single clients at the server"
    }


def test_each_reason_lists_its_sums():
    text = page({("a", "b"): "no", ("a", "c"): "", ("b", "c"): "no"})
    assert "- no: `a+b`, `b+c`" in text
    assert "Of 3 pairs, 1 run and 2 are refused" in text
