"""Whether a claim holds: the rule, by hand, on tables of a few numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helpers.table_records import cell, table, with_cell
from holdfast.reproduce.claims import Outcome, outcomes, published_counts
from holdfast.reproduce.markdown import which
from holdfast.reproduce.table_schema import TableRecord


def fake(rows: list[list[float | None]], less: bool = False, scale: str = "full") -> TableRecord:
    """A table of two columns, with our numbers; the published ones are 1 and 2. None: not run."""
    cells = [[cell(v, 1.0 + j, less) for j, v in enumerate(row)] for row in rows]
    return table("AB", cells, expect=["B > A"], scale=scale)


def claim(t: TableRecord) -> Outcome:
    first, second = outcomes(t)
    assert second is None
    return first


def test_the_rule_of_claims_by_hand() -> None:
    assert claim(fake([[1, 2], [1, 3]])).verdict == "holds"
    assert claim(fake([[1, 2], [3, 1]])).verdict == "holds partly"
    assert claim(fake([[2, 1], [3, 1], [1, 2]])).verdict == "does not hold here"
    assert claim(fake([[2, 1], [3, 1]], less=True)).verdict == "holds"
    assert claim(fake([[1, None], [None, 3]])).verdict == "not tested"
    assert claim(fake([[1, 2]], scale="smoke")) == Outcome("not tested", 0, 0, 0, 0)
    part = fake([[1, 2], [1, None]])
    assert claim(part) == Outcome("holds", passed=1, tested=1, pairs_run=1, pairs=2)
    assert published_counts(part) == (2, 2)
    both = fake([[1, 1]])
    both = with_cell(both, 0, 0, status="diverged")
    assert claim(both).verdict == "holds", "a run that diverged is worse"
    both = with_cell(both, 0, 1, status="diverged")
    assert claim(both).verdict == "not tested"


def named(rows: list[list[float | None]], columns: str, **more: Any) -> TableRecord:
    """A table with our numbers, which are also the published ones; None: not run."""
    return table(columns.split(), [[cell(v, v) for v in row] for row in rows], **more)


def test_the_best_of_all_needs_all_and_fails_by_one() -> None:
    t = named([[3, 1, 2], [3, 4, None], [3, 1, None]], "A B C", expect=["A > all"])
    assert claim(t) == Outcome("holds partly", passed=1, tested=2, pairs_run=4, pairs=6), "the third row is open"
    t = with_cell(t, 2, 2, status="absent")
    assert claim(t) == Outcome("holds partly", passed=2, tested=3, pairs_run=4, pairs=5), "C can never be run there"


@pytest.mark.parametrize(
    ("needs", "rows", "said"),
    [
        ("most", [[2, 1], [2, 1], [1, 2]], "holds"),
        ("most", [[2, 1], [2, 1], [2, None]], "holds"),
        ("most", [[1, 2], [None, 1], [2, None]], "open"),
        ("most", [[1, 2], [1, 2], [2, None]], "does not hold here"),
        ("all but 1", [[2, 1], [2, 1], [1, 2]], "holds"),
        ("all but 1", [[2, 1], [1, 2], [2, None]], "open"),
        ("all but 1", [[1, 2], [1, 2], [2, None]], "does not hold here"),
        ("all", [[2, 1], [2, 1], [2, None]], "holds"),
    ],
)
def test_most_and_all_but_one_are_of_the_whole_table(needs: str, rows: list[list[float | None]], said: str) -> None:
    assert claim(named(rows, "A B", expect=["A > B"], needs=needs)).verdict == said


def test_ties_and_numbers_in_claims() -> None:
    level = named([[2, 2]], "A B", expect=["A > B"])
    assert claim(level).passed == 0
    assert claim(replace(level, expect=["A >= B"])).passed == 1
    high = named([[0.98], [0.995], [None]], "A", expect=["A >= 0.99"])
    assert claim(high) == Outcome("holds partly", passed=1, tested=2, pairs_run=2, pairs=3)
    assert claim(replace(high, reproduction=False)) == Outcome("not tested", 0, 0, 0, 0), "another level elsewhere"
    assert published_counts(replace(high, reproduction=False)) == (1, 2)
    quick = named([[5]], "A", expect=["A > 6"])
    quick = with_cell(quick, 0, 0, less_is_better=True)
    assert claim(quick).passed == 1, "five rounds are better than six"


def test_a_variant_has_an_outcome_of_its_own_and_is_nobodys_rival() -> None:
    t = named([[1, 2, 5, 3]], "A B C A2", expect=["A > all"], variants={"A2": "A"})
    first, second = outcomes(t)
    assert first == Outcome("does not hold here", passed=0, tested=1, pairs_run=2, pairs=2)
    assert second == Outcome("does not hold here", passed=0, tested=1, pairs_run=2, pairs=2), "A2 against B and C"
    assert published_counts(t) == (0, 1), "only the first is published"
    first, second = outcomes(named([[1, None, 3, 2]], "A B A2 B2", expect=["A > B"], variants={"A2": "A", "B2": "B"}))
    assert first == Outcome("not tested", passed=0, tested=0, pairs_run=0, pairs=1), "B was not run"
    assert second == Outcome("holds", passed=1, tested=1, pairs_run=1, pairs=1), "A2 against B2"
    _, second = outcomes(named([[1, 3]], "C A2", expect=["A > C"], variants={"A2": "A"}))
    assert second == Outcome("holds", passed=1, tested=1, pairs_run=1, pairs=1), "A was not asked for"
    assert outcomes(named([[1, 3, None]], "A B A2", expect=["B > A"], variants={"A2": "A"}))[1] is None, "not run"


def test_what_was_not_run_is_named() -> None:
    t = named([[1, None, None], [None, None, None], [1, 2, None], [None, None, None]], "A B C")
    assert which(t) == ": rows 2, 4; column C; 1 more"
    for column in range(3):
        t = with_cell(t, 1, column, status="data absent")
    assert which(t) == ": row 4; column C; 1 more", "that is said elsewhere"
    assert which(named([[1, None], [None, 1]], "A B")) == ""
    assert which(named([[None, None]], "A B")) == "", "all of it"
