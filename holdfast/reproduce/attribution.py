"""What each choice of a reading is worth to the baseline: alone, one after the other, and all together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.comparison.study_schema import PairedDifference
from holdfast.reproduce.baseline_levels import POINTS, baselines
from holdfast.reproduce.claims import same
from holdfast.reproduce.gains import CellPair, mean_difference
from holdfast.reproduce.paper import PLAIN
from holdfast.reproduce.readings import ALONE
from holdfast.reproduce.table_schema import TableRecord


@dataclass(frozen=True)
class Attribution:
    """A reading taken apart.

    Attributes:
        plain: The table in the plain reading.
        goal: The table in the reading that is taken apart.
        steps: What each of its choices alone changes in points, in the reading's order; None where it was not run.
        whole: What all of them together change.
    """

    plain: TableRecord
    goal: TableRecord
    steps: dict[str, PairedDifference | None]
    whole: PairedDifference | None


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
        found.append(Attribution(plain, goal, steps, shift(plain, goal)))
    return found


def shift(plain: TableRecord, other: TableRecord) -> PairedDifference | None:
    """Return by how much another reading changes the baseline, on average over the rows that both have run."""
    pairs: list[CellPair] = []
    for row, base in zip(other.rows, plain.rows, strict=True):
        cells = [(other.column(row, name), plain.column(base, name)) for name in baselines(plain)]
        pairs += [(a, b) for a, b in cells if a.status == b.status == "run" and a.unit in POINTS]
    return mean_difference(pairs)
