"""What becomes of a claim: every verdict, by hand, on tables of a few numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from helpers.table_records import cell, read_as, table, with_cell
from holdfast.comparison.stats import NOT_SEEN
from holdfast.reproduce.baseline_levels import NOT_PRINTED, NOT_REACHED, NOT_RUN, UNKNOWN_DATA, baseline_levels
from holdfast.reproduce.claims import DEPENDS, Verdict, claims, verdict, verdicts
from holdfast.reproduce.markdown import outcome_text, which
from holdfast.reproduce.outcomes import (
    CELLS_NOT_RUN,
    FAILS,
    FEW,
    HOLDS,
    NEITHER,
    NOT_TESTED,
    PARTLY,
    Outcome,
    outcome,
    published_counts,
)
from holdfast.reproduce.table_schema import TableRecord

Numbers = float | Sequence[float | None] | None


def fake(rows: list[list[Numbers]], less: bool = False, **more: Any) -> TableRecord:
    """A table of two columns, with our numbers; the published ones are 1 and 2. None: not run."""
    cells = [[cell(v, 1.0 + j, less) for j, v in enumerate(row)] for row in rows]
    return table("AB", cells, **{"expect": ["B > A"], **more})


def named(rows: list[list[Numbers]], columns: str, **more: Any) -> TableRecord:
    """A table with our numbers; nothing is printed. None: not run."""
    return table(columns.split(), [[cell(v, None) for v in row] for row in rows], **more)


# -- one table, one reading --------------------
@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ([1.0, 2.0, 3.0], [2.0, 3.0, 4.1], HOLDS),
        ([2.0, 3.0, 4.1], [1.0, 2.0, 3.0], FAILS),
        ([1.0, 2.0, 3.0], [1.5, 1.5, 3.5], NOT_SEEN),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], NOT_SEEN),  # a tie is no gain
        ([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], HOLDS),  # equal differences have no spread
    ],
)
def test_a_test_is_judged_by_the_paired_interval(a: list[float], b: list[float], said: str) -> None:
    assert outcome(fake([[a, b]]), {}).word == said
    assert outcome(fake([[b, a]], less=True), {}).word == said, "fewer rounds are better"


def test_the_interval_is_that_of_students_t() -> None:
    """Differences 1, 2, 3: mean 2, standard error 0.5774, t(2) 4.303: from -0.48 to 4.48. With 1.5, 2, 2.5: above 0."""
    assert outcome(fake([[[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]]]), {}).word == NOT_SEEN
    assert outcome(fake([[[0.0, 0.0, 0.0], [1.5, 2.0, 2.5]]]), {}).word == HOLDS


def test_ties_are_good_enough_for_at_least_as_good() -> None:
    level = fake([[[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]], expect=["B >= A"])
    assert outcome(level, {}).word == HOLDS
    assert outcome(fake([[[1.0, 2.0, 3.0], [1.5, 1.5, 3.5]]], expect=["B >= A"]), {}).word == NOT_SEEN


@pytest.mark.parametrize("seeds", [1, 2])
def test_one_or_two_seeds_decide_nothing_and_say_so(seeds: int) -> None:
    found = outcome(fake([[[1.0] * seeds, [9.0] * seeds]]), {})
    assert found == Outcome("open", tests=1, why=FEW)


def test_only_seeds_that_both_have_count() -> None:
    t = fake([[[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]])
    runs = t.cells[1].runs
    assert runs is not None
    t = with_cell(t, 0, 1, runs=replace(runs, seeds=[1, 2, 3]))
    assert outcome(t, {}).why == FEW, "1 and 2 are two"


def test_a_run_without_a_number_is_worse_than_one_with_it() -> None:
    t = with_cell(fake([[1, 2]]), 0, 0, status="diverged")
    runs = t.cells[0].runs
    assert runs is not None
    t = with_cell(t, 0, 0, runs=replace(runs, ours=None))
    assert outcome(t, {}).word == HOLDS
    assert outcome(replace(t, expect=["A > B"]), {}).word == FAILS
    both = with_cell(t, 0, 1, status="diverged", runs=t.cells[0].runs)
    assert outcome(both, {}) == Outcome("open", tests=1, why=NEITHER)
    never = fake([[[None, 5.0, None], [4.0, 4.0, 4.0]]], less=True)
    assert outcome(never, {}).word == HOLDS, "in every seed, be it by never"
    assert outcome(fake([[[None, 3.0, None], [4.0, 4.0, 4.0]]], less=True), {}).word == NOT_SEEN


def test_other_scales_and_settings_test_nothing() -> None:
    assert outcome(fake([[1, 2]], reproduction=False), {}).word == NOT_TESTED


def test_data_without_a_known_checksum_decides_nothing() -> None:
    t = fake([[1, 2]])
    runs = t.cells[1].runs
    assert runs is not None
    for made in ([{"data_checksum": "0"}] * 2 + [{}], []):
        assert outcome(with_cell(t, 0, 1, runs=replace(runs, made=made)), {}).why == UNKNOWN_DATA
    settings = {"data": "cifar10(normalise=off)"}
    jpeg, exact = ([{"data_checksum": sum}] * 3 for sum in ("0a1b2c3d", "a38905a0"))
    assert outcome(with_cell(t, 0, 1, runs=replace(runs, settings=settings, made=jpeg)), {}).why == UNKNOWN_DATA
    assert outcome(with_cell(t, 0, 1, runs=replace(runs, settings=settings, made=exact)), {}).word == HOLDS


def test_what_a_claim_adds_up_to() -> None:
    up, down, level = [1, 2], [2, 1], [[1.0, 2.0, 3.0], [1.5, 1.5, 3.5]]
    assert outcome(fake([up, up]), {}) == Outcome(HOLDS, held=2, tests=2)
    assert outcome(fake([up, down]), {}) == Outcome(FAILS, held=1, failed=1, tests=2)
    assert outcome(fake([up, level]), {}) == Outcome(PARTLY, held=1, unclear=1, tests=2)
    assert outcome(fake([level, level]), {}) == Outcome(NOT_SEEN, unclear=2, tests=2)
    assert outcome(fake([up, [1, None]]), {}) == Outcome(HOLDS, held=1, tests=2, why=CELLS_NOT_RUN)
    assert outcome(fake([[1, None]]), {}) == Outcome("open", tests=1, why=CELLS_NOT_RUN)
    text = outcome_text(fake([up], not_asked=3), Outcome(PARTLY, held=1, unclear=1, failed=1, tests=4, why="x"))
    assert text == (
        "**holds partly, as far as run** (1 of 4 tests hold, 1 show no difference, 1 do not hold; 1 open, mostly: x of "
        "the requested cells)"
    )


@pytest.mark.parametrize(
    ("needs", "rows", "said"),
    [
        ("most", [[2, 1], [2, 1], [1, 2]], HOLDS),
        ("most", [[2, 1], [2, 1], [2, None]], HOLDS),
        ("most", [[1, 2], [None, 1], [2, None]], "open"),
        ("most", [[1, 2], [1, 2], [2, None]], FAILS),
        ("all but 1", [[2, 1], [2, 1], [1, 2]], HOLDS),
        ("all but 1", [[2, 1], [1, 2], [2, None]], "open"),
        ("all but 1", [[1, 2], [1, 2], [2, None]], FAILS),
        ("all but 1", [[2, 1], [1, 1], [1, 1]], PARTLY),
        ("all", [[2, 1], [2, 1], [2, None]], HOLDS),
    ],
)
def test_most_and_all_but_one_are_of_the_whole_table(needs: str, rows: list[list[Numbers]], said: str) -> None:
    assert outcome(named(rows, "A B", expect=["A > B"], needs=needs), {}).word == said


def test_the_best_of_all_needs_all_and_fails_by_one() -> None:
    t = named([[3, 1, 2], [3, 4, None], [3, 1, None]], "A B C", expect=["A > all"])
    assert outcome(t, {}) == Outcome(FAILS, held=1, failed=1, tests=3, why=CELLS_NOT_RUN), "the third row is open"
    t = with_cell(t, 2, 2, status="absent")
    assert outcome(t, {}).held == 2, "C can never be run there"


def test_a_number_to_reach() -> None:
    high = named([[[0.98, 0.99, 0.98]], [0.995], [None]], "A", expect=["A >= 0.99"])
    assert outcome(high, {}) == Outcome(PARTLY, held=1, unclear=1, tests=3, why=CELLS_NOT_RUN)
    assert published_counts(fake([[1, 2]], expect=["B >= 1.5"])) == (1, 1)
    quick = with_cell(named([[5]], "A", expect=["A > 6"]), 0, 0, less_is_better=True)
    assert outcome(quick, {}).held == 1, "five rounds are better than six"


def test_a_control_is_nobodys_rival() -> None:
    t = named([[3, 1, 9]], "A B C", expect=["A > all"])
    assert outcome(t, {}).word == FAILS
    assert outcome(replace(t, controls={"C": "the rate"}), {}).word == HOLDS


def test_a_claim_about_rows_is_tested_in_published_columns() -> None:
    t = named([[1, 9], [2, 3]], "A B", expect=["row 1 > row 0"])
    assert outcome(t, {}) == Outcome(FAILS, held=1, failed=1, tests=2)
    assert outcome(replace(t, controls={"B": "the rate"}), {}) == Outcome(HOLDS, held=1, tests=1)


def test_a_variant_has_an_outcome_of_its_own_and_is_nobodys_rival() -> None:
    t = named([[1, 2, 0.5, 3]], "A B C A2", expect=["A > all"], variants={"A2": "A"})
    assert outcome(t, {}).word == FAILS
    assert outcome(t, {"A": "A2"}) == Outcome(HOLDS, held=1, tests=1), "A2 against B and C"
    t = named([[1, None, 3, 2]], "A B A2 B2", expect=["A > B"], variants={"A2": "A", "B2": "B"})
    assert outcome(t, {}).why == CELLS_NOT_RUN
    assert outcome(t, {"A": "A2", "B": "B2"}).word == HOLDS, "A2 against B2"
    t = named([[1, 3]], "C A2", expect=["A > C"], variants={"A2": "A"})
    assert outcome(t, {"A": "A2"}).word == HOLDS, "A was not asked for"
    assert outcome(t, {}) == Outcome("open")


# -- several readings --------------------
def level(ours: Numbers, new: Numbers, reading: str = "plain", choices: int = 0) -> TableRecord:
    """A table whose baseline is printed as 50, and the method under test as 60."""
    t = table(["base", "new"], [[cell(ours, 50.0), cell(new, 60.0)]], expect=["new > base"], baseline=["base"])
    return read_as(t, reading, choices)


def judged(*tables: TableRecord) -> Verdict:
    return verdict(tables, tables[0], variants=False)


def test_the_nearest_reading_within_three_points_decides() -> None:
    plain, other = level(47.5, 60), level(49, 40, "other")
    found = judged(plain, other)
    assert (found.word, found.why, found.table, found.others[0][0]) == ("open", DEPENDS, other, plain)
    assert judged(plain, level(54, 40, "far")).words == HOLDS, "four points off is no reading of the paper"
    assert judged(plain, level(48, 61, "other")).words == HOLDS
    assert judged(level(46.9, 60)).words == f"open: {NOT_REACHED}"
    assert judged(level(47, 60)).words == HOLDS, "three points are within three points"
    assert judged(level(None, 60)).words == f"open: {NOT_RUN}"


def test_readings_that_agree_stand_side_by_side() -> None:
    found = judged(level(49, 60), level(48, 60, "other"), level(47, None, "idle"))
    assert found.words == HOLDS
    assert [(t.reading.name, o.word) for t, o in found.others] == [("other", HOLDS), ("idle", "open")]


def test_a_reading_that_was_not_run_decides_nothing() -> None:
    baseline_only = level(50, None, "other")
    assert judged(level(49, 60), baseline_only).words == f"open: {CELLS_NOT_RUN}", "the nearest was not finished"


@pytest.mark.parametrize("new", [None, 0.0, 49.0, 99.0, [60.0], [None, None, None]])
def test_the_method_under_test_has_no_part_in_the_choice(new: Numbers) -> None:
    """Whatever its numbers, the same readings qualify in the same order."""
    chosen = [
        x.table.reading.name for x in baseline_levels([level(47.5, new), level(49, 60, "b"), level(57, new, "c")])
    ]
    assert chosen == ["b", "plain", "c"]
    named_as_baseline = replace(level(49, new), baseline=["base", "new"])
    (found,) = baseline_levels([named_as_baseline])
    assert found.gap == 1.0, "not even where a file calls it a baseline"


def test_equal_baselines_go_to_the_reading_with_fewer_choices() -> None:
    one, two = level(49, 60, "a", choices=2), level(49, 40, "b", choices=1)
    assert [x.table.reading.name for x in baseline_levels([one, two])] == ["b", "a"]
    assert judged(one, two).why == DEPENDS


def test_readings_are_compared_over_the_rows_that_all_have() -> None:
    def rows(first: Numbers, second: Numbers, reading: str) -> TableRecord:
        cells = [[cell(v, 50.0), cell(60, 60.0)] for v in (first, second)]
        return read_as(table(["base", "new"], cells, baseline=["base"], expect=["new > base"]), reading)

    found = baseline_levels([rows(49, 40, "a"), rows(48, None, "b")])
    assert [(x.table.reading.name, x.gap, x.rows) for x in found] == [("a", 1.0, 1), ("b", 2.0, 1)]
    apart = baseline_levels([rows(49, None, "a"), rows(None, 45, "b")])
    assert [(x.table.reading.name, x.gap) for x in apart] == [("a", 1.0), ("b", 5.0)]
    half = judged(rows(49, 45.5, "a"))
    assert (half.words, half.outcome) == (
        f"{HOLDS}, as far as run",
        Outcome(HOLDS, held=1, tests=2, why=NOT_REACHED),
    ), "row by row"


def test_a_level_can_be_that_of_another_table() -> None:
    rounds = named([[9, 5]], "base new", table="2", expect=["new > base"], level_of="1")
    rounds = with_cell(with_cell(rounds, 0, 0, less_is_better=True), 0, 1, less_is_better=True)
    assert verdict([level(49, 40), rounds], rounds, variants=False).words == HOLDS
    assert verdict([level(40, 60), rounds], rounds, variants=False).words == f"open: {NOT_REACHED}"
    assert verdict([rounds], rounds, variants=False).words == f"open: {NOT_PRINTED}"
    other = read_as(level(50, 60), "other")
    said = "open: not run under the reading “other”, which the baseline asks for"
    assert verdict([level(49, 40), other, rounds], rounds, variants=False).words == said


def test_fractions_are_counted_in_points() -> None:
    t = table(["base", "new"], [[cell(0.48, 0.5), cell(0.6, 0.6)]], baseline=["base"], expect=["new > base"])
    t = with_cell(with_cell(t, 0, 0, unit="fraction"), 0, 1, unit="fraction")
    (found,) = baseline_levels([t])
    assert found.gap == pytest.approx(2.0)


def test_variants_have_a_line_where_they_were_run() -> None:
    t = table(
        ["base", "new", "ours"], [[cell(49, 50.0), cell(40, 60.0), cell(70, 60.0)]],
        expect=["new > base"], baseline=["base"], variants={"ours": "new"},
    )  # fmt: skip
    first, second = verdicts([t], t)
    assert second is not None
    assert (first.words, second.words) == (FAILS, HOLDS)
    assert verdicts([t], with_cell(t, 0, 2, status="not run", runs=None))[1] is not None, "as stored"
    idle = with_cell(t, 0, 2, status="not run", runs=None)
    assert verdicts([idle], idle)[1] is None


def test_a_claim_is_counted_once() -> None:
    t, other, alone = level(49, 60), level(48, 60, "other"), level(48, 60, "only: x")
    figure = replace(t, table="fig1", same_runs_as="1")
    small = replace(t, scale="small", reproduction=False)
    assert [(c.table, c.scale) for c in claims([t, other, alone, figure, small])] == [("1", "full"), ("1", "small")]
    assert verdict([small], small, variants=False).word == NOT_TESTED


def test_what_was_not_run_is_named() -> None:
    t = named([[1, None, None], [None, None, None], [1, 2, None], [None, None, None]], "A B C")
    assert which(t) == ": rows 2, 4; column C; 1 more"
    for column in range(3):
        t = with_cell(t, 1, column, status="data absent")
    assert which(t) == ": row 4; column C; 1 more", "that is said elsewhere"
    assert which(named([[1, None], [None, 1]], "A B")) == ""
    assert which(named([[None, None]], "A B")) == "", "all of it"
