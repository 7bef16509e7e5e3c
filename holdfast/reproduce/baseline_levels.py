"""Which reading brings the baseline to the printed level. No method that a claim tests is looked at."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.reproduce.expectations import Expectation
from holdfast.reproduce.table_schema import CellRecord, RowRecord, TableRecord

NEAR = 3.0  # points: a baseline farther from print does not show what the paper shows
POINTS = {"%": 1.0, "fraction": 100.0}  # points per unit, of the units that have any
NOT_RUN, NOT_PRINTED, UNKNOWN_DATA = (
    "the baseline was not run",
    "the paper prints no accuracy of the baseline",
    "the data's checksum is unknown, or not that of the published data",
)
NOT_REACHED = "the baseline's level is not reached"


@dataclass(frozen=True)
class BaselineLevel:
    """How far the baseline lies from print under one reading.

    Attributes:
        table: The table as it is under that reading.
        gap: The mean distance in points over the rows that were compared.
        rows: How many these are.
    """

    table: TableRecord
    gap: float
    rows: int

    @property
    def near(self) -> bool:
        """Whether the printed level is reached."""
        return self.gap <= NEAR


def baseline_levels(tables: Sequence[TableRecord]) -> list[BaselineLevel]:
    """Compare the readings of a table by its baseline alone.

    Args:
        tables: The same table under several readings.

    Returns:
        Those with a number to compare, the nearest to print first; of equals the one with fewer choices. Readings are
        compared over the rows that were run under each of them, or over all that each has if there is no such row.
    """
    gaps = {t.reading.name: row_gaps(t) for t in tables if not t.reading.alone}
    run = [set(found) for found in gaps.values() if found]
    shared = set.intersection(*run) if run else set()
    levels = []
    for t in tables:
        found = gaps.get(t.reading.name, {})
        rows = [gap for name, gap in found.items() if not shared or name in shared]
        levels += [BaselineLevel(t, statistics.fmean(rows), len(rows))] if rows else []
    return sorted(levels, key=lambda level: (level.gap, len(level.table.reading.choices), level.table.reading.name))


def row_gaps(t: TableRecord) -> dict[str, float]:
    """Return how far the baseline lies from print in every row where that is known, in points."""
    gaps = {row.name: row_gap(t, row) for row in t.rows}
    return {name: gap for name, gap in gaps.items() if isinstance(gap, float)}


def row_gap(t: TableRecord, row: RowRecord) -> float | str:
    """Return how far the baseline of a row lies from print, in points, or why that is not known.

    It is the mean over the table's baselines; all of them must have been run.
    """
    cells = [t.column(row, name) for name in baselines(t)]
    printed = [c for c in cells if c.published is not None and math.isfinite(c.published) and c.unit in POINTS]
    if not printed:
        return NOT_PRINTED
    gaps = [cell_gap(c) for c in printed]
    unknown = [gap for gap in gaps if isinstance(gap, str)]
    return unknown[0] if unknown else statistics.fmean(gap for gap in gaps if isinstance(gap, float))


def cell_gap(c: CellRecord) -> float | str:
    """Return how far a printed cell lies from our number, in points, or why that is not known."""
    if c.runs is None or c.runs.ours is None or c.runs.ours.mean is None or c.published is None:
        return NOT_REACHED if c.status == "diverged" else NOT_RUN
    if not c.runs.on_published_data:
        return UNKNOWN_DATA
    return abs(c.runs.ours.mean - c.published) * POINTS[c.unit]


def baselines(t: TableRecord) -> list[str]:
    """Return the baselines of a table; what its claim tests is none, whatever its file says."""
    tested = {Expectation.parse(text).left for text in t.expect}
    return [name for name in t.baseline if name in t.columns and name not in tested]


def unknown_level(tables: Sequence[TableRecord]) -> str:
    """Return why no reading of a table has a level."""
    reasons = [gap for t in tables for row in t.rows if isinstance(gap := row_gap(t, row), str)]
    return next((why for why in (UNKNOWN_DATA, NOT_REACHED, NOT_RUN) if why in reasons), NOT_PRINTED)
