"""What each choice of a reading is worth to the baseline: alone, one after the other, and all together."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.comparison.study_schema import PairedDifference
from holdfast.reproduce.baseline_levels import POINTS, baselines
from holdfast.reproduce.claims import same
from holdfast.reproduce.gains import CellPair, mean_difference
from holdfast.reproduce.paper import PLAIN
from holdfast.reproduce.readings import ALONE
from holdfast.reproduce.table_schema import CellRecord, TableRecord


@dataclass(frozen=True)
class Attribution:
    """A reading taken apart.

    Attributes:
        plain: The table in the plain reading.
        goal: The table in the reading that is taken apart.
        steps: What each of its choices alone changes in points, in the reading's order; None where it was not run.
        whole: What all of them together change.
        means: The mean of the printed numbers, of the plain reading and of the goal, over the rows that all have.
    """

    plain: TableRecord
    goal: TableRecord
    steps: dict[str, PairedDifference | None]
    whole: PairedDifference | None
    means: tuple[float, float, float] | None


def attributions(tables: Sequence[TableRecord], of: TableRecord) -> list[Attribution]:
    """Take apart every reading of a table that has choices which were run by themselves.

    Args:
        tables: All tables of the paper.
        of: The table, under any reading.

    Returns:
        One attribution for each reading.
    """
    known = {t.reading.name: t for t in same(tables, of, of.table)}
    plain, found = known.get(PLAIN), []
    for goal in known.values():
        alone = {c.name: known.get(ALONE + c.name) for c in goal.reading.choices}
        if plain is None or goal.reading.alone or not any(alone.values()):
            continue
        steps = {name: shift(plain, t) if t is not None else None for name, t in alone.items()}
        found.append(Attribution(plain, goal, steps, shift(plain, goal), means(plain, goal)))
    return found


def means(plain: TableRecord, goal: TableRecord) -> tuple[float, float, float] | None:
    """Return the mean of what is printed, of the plain reading and of the goal, over the baseline's common rows."""
    cells = [(a.published, our_mean(b), our_mean(a)) for a, b in both_run(plain, goal)]
    known = [numbers for numbers in cells if None not in numbers]
    if not known:
        return None
    printed, ours, read = (statistics.fmean(n for n in column if n is not None) for column in zip(*known, strict=True))
    return printed, ours, read


def our_mean(c: CellRecord) -> float | None:
    """Return the mean of a cell's runs."""
    return c.runs.ours.mean if c.runs is not None and c.runs.ours is not None else None


def both_run(plain: TableRecord, other: TableRecord) -> list[CellPair]:
    """Return the baseline's cells that were run under both readings, the other reading's first."""
    pairs: list[CellPair] = []
    for row, base in zip(other.rows, plain.rows, strict=True):
        cells = [(other.column(row, name), plain.column(base, name)) for name in baselines(plain)]
        pairs += [(a, b) for a, b in cells if a.status == b.status == "run" and a.unit in POINTS]
    return pairs


def shift(plain: TableRecord, other: TableRecord) -> PairedDifference | None:
    """Return by how much another reading changes the baseline, on average over the rows that both have run."""
    return mean_difference(both_run(plain, other))
