"""Small tables of a reproduction, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from holdfast.comparison.study_schema import Spread
from holdfast.reproduce.table_schema import CellRecord, CellRuns, RowRecord, TableRecord

NO_RUN = CellRecord("not run", "", "fedavg", "%", False, None, None)


def cell(ours: float | None, published: float | None, less: bool = False) -> CellRecord:
    """A cell with a number of ours; None: not run."""
    empty = replace(NO_RUN, published=published, less_is_better=less)
    if ours is None:
        return empty
    runs = CellRuns("folder", {}, 4, "final", [0], [{}], 1.0, Spread(ours, None, [ours]))
    return replace(empty, status="run", runs=runs)


def table(columns: Sequence[str], rows: Sequence[Sequence[CellRecord]], **more: Any) -> TableRecord:
    """A table of the paper's own setting."""
    made = [RowRecord(f"row {i}", "", list(cells)) for i, cells in enumerate(rows)]
    values = {
        "paper": "toy", "title": "Toy", "table": "1", "caption": "Numbers", "claim": "It is better.", "note": "",
        "why_not": "", "scale": "full", "changed": {}, "reproduction": True, "measure": "final", "unit": "%",
        "expect": [], "needs": "all", "variants": {}, "not_asked": 0,
    }  # fmt: skip
    return TableRecord(columns=list(columns), rows=made, **values | more)


def with_cell(t: TableRecord, row: int, column: int, **changes: Any) -> TableRecord:
    """The same table with one cell changed."""
    cells = [replace(c, **changes) if j == column else c for j, c in enumerate(t.rows[row].cells)]
    rows = [replace(r, cells=cells) if i == row else r for i, r in enumerate(t.rows)]
    return replace(t, rows=rows)
