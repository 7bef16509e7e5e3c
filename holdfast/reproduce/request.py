"""What a user asks to be reproduced: in words, and resolved to the cells of a paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.errors import HoldfastError, unknown
from holdfast.reproduce.cells import Cell, TableSelection, cells
from holdfast.reproduce.paper import SCALES, Paper, PaperTable
from holdfast.reproduce.selection import choose, see

ALL_TABLES = "all"


@dataclass(frozen=True)
class Request:
    """What a user asks for, as written.

    Attributes:
        tables: The tables, by name; an item may be a list with commas, or ``all``.
        rows: The rows, by number, name or part of a name; empty for all.
        columns: The columns, likewise.
        scale: ``smoke``, ``small`` or ``full``.
        seeds: How many runs each cell gets, with the seeds 0, 1, ...
        settings: Settings that override the paper's.
    """

    tables: Sequence[str] = (ALL_TABLES,)
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    scale: str = "small"
    seeds: int = 1
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ResolvedRequest:
    """A checked request: everything that it names exists.

    Attributes:
        paper: The paper.
        selections: Of each table the requested rows and columns.
        unmatched: Tables without any of the requested rows and columns.
        scale: ``smoke``, ``small`` or ``full``.
        seeds: The seeds of every cell.
        settings: The user's settings.
        cells: The requested cells that can be run.
    """

    paper: Paper
    selections: list[TableSelection]
    unmatched: list[str]
    scale: str
    seeds: list[int]
    settings: dict[str, Any]
    cells: list[Cell]


def resolve(request: Request, paper: Paper) -> ResolvedRequest:
    """Check a request before anything runs, and find the cells that it names."""
    if request.scale not in SCALES:
        raise unknown("scale", request.scale, SCALES)
    if not isinstance(request.seeds, int) or request.seeds < 1:
        raise HoldfastError(f"seeds must be a whole number of at least 1, not {request.seeds}")
    for name in ("method", "seed"):
        if name in request.settings:
            raise HoldfastError(f"{name} cannot be set in a reproduction: the paper's table decides it; leave it out")
    tables = named_tables(request.tables, paper)
    rows = choose("row", request.rows, {id: [r.name for r in t.row] for id, t in tables.items()}, paper.name)
    columns = choose(
        "column", request.columns, {id: [c.name for c in t.columns] for id, t in tables.items()}, paper.name
    )
    narrowed = bool(request.rows or request.columns)
    unmatched = [id for id in tables if narrowed and not (rows[id] and columns[id])]
    if len(unmatched) == len(tables):
        raise HoldfastError(f"no table has both these rows and these columns; {see(paper.name)}")
    selections = [TableSelection(t, rows[id], columns[id]) for id, t in tables.items() if id not in unmatched]
    every = [cell for s in selections for cell in cells(paper, s, request.scale, request.settings)]
    return ResolvedRequest(
        paper=paper,
        selections=selections,
        unmatched=unmatched,
        scale=request.scale,
        seeds=list(range(request.seeds)),
        settings=dict(request.settings),
        cells=[cell for cell in every if not cell.absent],
    )


def named_tables(names: Sequence[str], paper: Paper) -> dict[str, PaperTable]:
    """Return the tables with these names, in this order."""
    ids = [id.strip() for text in names for id in text.split(",")]
    return {t.id: t for t in (paper.table if ids == [ALL_TABLES] else map(paper.find, ids))}
