"""Small tables of a reproduction, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from holdfast.comparison.stats import spread
from holdfast.reproduce.table_schema import CellRecord, CellRuns, ChoiceRecord, ReadingRecord, RowRecord, TableRecord

NO_RUN = CellRecord("not run", "", "fedavg", "%", False, None, None)


MADE = {"data_checksum": "0a1b2c3d"}  # of a data set whose published checksum is not known: any will do


def cell(ours: float | Sequence[float | None] | None, published: float | None, less: bool = False) -> CellRecord:
    """A cell with our numbers: of each seed, or one that three seeds have; None: not run."""
    empty = replace(NO_RUN, published=published, less_is_better=less)
    if ours is None:
        return empty
    values = list(ours) if isinstance(ours, Sequence) else [ours] * 3
    seeds = list(range(len(values)))
    runs = CellRuns("folder", {}, 4, "final", seeds, [MADE] * len(seeds), 1.0, spread(values))
    return replace(empty, status="run", runs=runs)


def table(columns: Sequence[str], rows: Sequence[Sequence[CellRecord]], **more: Any) -> TableRecord:
    """A table of the paper's own setting."""
    made = [RowRecord(f"row {i}", "", list(cells)) for i, cells in enumerate(rows)]
    values = {
        "paper": "toy", "title": "Toy", "table": "1", "caption": "Numbers", "claim": "It is better.", "note": "",
        "why_not": "", "scale": "full", "reading": ReadingRecord(), "changed": {}, "reproduction": True,
        "measure": "final", "unit": "%", "expect": [], "needs": "all", "baseline": [], "level_of": "",
        "same_runs_as": "", "variants": {}, "controls": {}, "not_asked": 0,
    }  # fmt: skip
    return TableRecord(columns=list(columns), rows=made, **values | more)


def read_as(t: TableRecord, name: str, choices: int = 0) -> TableRecord:
    """The same table under a reading with this number of choices."""
    made = [ChoiceRecord(f"choice {i}", "it may be", "a guess") for i in range(choices)]
    return replace(t, reading=ReadingRecord(name, "", made))


def with_cell(t: TableRecord, row: int, column: int, **changes: Any) -> TableRecord:
    """The same table with one cell changed."""
    cells = [replace(c, **changes) if j == column else c for j, c in enumerate(t.rows[row].cells)]
    rows = [replace(r, cells=cells) if i == row else r for i, r in enumerate(t.rows)]
    return replace(t, rows=rows)
