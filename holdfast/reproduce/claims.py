"""The verdict on a paper's claim: under the reading that its baseline asks for, and beside it under every other one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.comparison.stats import NOT_SEEN
from holdfast.reproduce.baseline_levels import (
    NOT_REACHED,
    BaselineLevel,
    baseline_levels,
    unknown_level,
)
from holdfast.reproduce.outcomes import FAILS, HOLDS, NOT_TESTED, PARTLY, Outcome, outcome
from holdfast.reproduce.table_schema import TableRecord

RULE = """A paper leaves choices open; a **reading** makes them in one way, and the plain reading is that of the
settings in the paper's file alone. Readings are compared by the **baseline** alone, never by the method that a claim is
about: the reading whose baseline lies nearest to the printed number, on average over the rows, decides, if that is
within 3 points; of equals, the one with fewer choices. In it, a row whose own baseline lies farther away decides
nothing.

A claim is a list of **tests**, such as “A is better than B” or “A is better than all others”, applied to every row, and
judged by the 95% interval of the paired difference over seeds. A test *holds* if the interval lies on the claim's side,
it *does not hold* if the interval lies on the other side, and otherwise *no difference is seen*. One or two seeds
decide nothing, and neither does a run that does not say on what data it was made. A run that diverged, or never reached
its target, is worse than one that did.

A claim **does not hold** if more of its tests do not hold than it spares. It **holds** if all tests that could be
decided hold, or, if it spares some, enough of them. It **holds partly** if some tests hold and others show no
difference. It is **open** if its tests are, if no reading brings the baseline to the printed level, or if several
readings do and the verdicts differ between them. Each interval stands for itself: of forty tests without any true
difference, two will lie on one side or the other.

A **variant** is a mode or a setting of ours; it has its own line. A **control** is a column of ours with a setting that
the baseline was not given; it is nobody's rival. Figures that show the runs of a table again are not counted a second
time."""
OPEN = "open"
DEPENDS = "depends on the reading"
DECIDED = (HOLDS, PARTLY, NOT_SEEN, FAILS)


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim.

    Attributes:
        word: ``holds``, ``holds partly``, ``no difference seen``, ``does not hold``, ``open`` or ``not tested``.
        why: Why it is open or was not tested; empty otherwise.
        table: The table under the reading that decides; None if no reading does.
        outcome: The outcome under this reading.
        others: The table and the outcome under every other reading that brings the baseline to its level.
    """

    word: str
    why: str = ""
    table: TableRecord | None = None
    outcome: Outcome | None = None
    others: tuple[tuple[TableRecord, Outcome], ...] = ()

    @property
    def words(self) -> str:
        """The verdict with its reason or its limits."""
        if self.why:
            return f"{self.word}: {self.why}"
        return self.outcome.words if self.outcome is not None else self.word


def verdicts(tables: Sequence[TableRecord], of: TableRecord) -> tuple[Verdict, Verdict | None]:
    """Judge the claim of a table with the published settings, and with our variants of them if any of these was run.

    Args:
        tables: All tables of the paper, under all readings.
        of: The table, under any reading.

    Returns:
        Both verdicts.
    """
    first = verdict(tables, of, variants=False)
    ours = [
        row.cells[t.columns.index(name)] for t in same(tables, of, of.table) for row in t.rows for name in t.variants
    ]
    return first, verdict(tables, of, variants=True) if any(c.ran for c in ours) else None


def verdict(tables: Sequence[TableRecord], of: TableRecord, variants: bool) -> Verdict:
    """Judge the claim of a table.

    Args:
        tables: All tables of the paper, under all readings.
        of: The table, under any reading.
        variants: Whether our variants take the place of the columns that they vary.

    Returns:
        The verdict.
    """
    if of.why_not:
        return Verdict(NOT_TESTED, of.why_not)
    if not of.reproduction:
        return Verdict(NOT_TESTED, "the runs are not in the paper's setting")
    levels = levels_of(tables, of)
    near = [level.table.reading.name for level in levels if level.near]
    if not near:
        return Verdict(OPEN, NOT_REACHED if levels else unknown_level(same(tables, of, of.level_of or of.table)))
    known = {t.reading.name: t for t in same(tables, of, of.table)}
    found = [(t, outcome(t, swapped(t) if variants else {})) for name in near if (t := known.get(name)) is not None]
    if not found or found[0][0].reading.name != near[0]:
        return Verdict(OPEN, f"not run under the reading “{near[0]}”, which the baseline asks for")
    (table, one), others = found[0], tuple(found[1:])
    words = {o.word for _, o in found if o.word in DECIDED}
    if len(words) > 1 and one.word in DECIDED:
        return Verdict(OPEN, DEPENDS, table, one, others)
    why = "" if one.word in DECIDED else one.why
    return Verdict(one.word, why, table, one, others)


def levels_of(tables: Sequence[TableRecord], of: TableRecord) -> list[BaselineLevel]:
    """Return how near the readings bring the baseline that decides over a table; the nearest first."""
    return baseline_levels(same(tables, of, of.level_of or of.table))


def shown_table(tables: Sequence[TableRecord], of: TableRecord, v: Verdict) -> TableRecord:
    """Return a table under the reading to show: the one that decides, else the nearest to print that was run.

    Args:
        tables: All tables of the paper, under all readings.
        of: The table, under any reading.
        v: The verdict on its claim.

    Returns:
        The table.
    """
    known = {t.reading.name: t for t in same(tables, of, of.table)}
    nearest = [known.get(level.table.reading.name) for level in levels_of(tables, of)]
    return next((t for t in (v.table, *nearest) if t is not None), of)


def same(tables: Sequence[TableRecord], of: TableRecord, id: str) -> list[TableRecord]:
    """Return a table under all readings that were tried.

    Args:
        tables: All tables of the paper.
        of: A table of the same paper, with the scale and the changed settings that count.
        id: The table's number or name.

    Returns:
        The table as it is under each of them.
    """
    return [t for t in tables if (t.paper, t.table, t.circumstances) == (of.paper, id, of.circumstances)]


def swapped(t: TableRecord) -> dict[str, str]:
    """Return our variants by the published columns whose place they take."""
    return {published: column for column, published in t.variants.items()}


def claims(tables: Sequence[TableRecord]) -> list[TableRecord]:
    """Return a table for every claim that is counted: once, whatever readings and figures show it."""
    first = {(t.paper, t.table, t.circumstances): t for t in reversed(tables) if not t.reading.alone}
    return [t for t in reversed(first.values()) if t.claim and not t.same_runs_as]
