"""What a user asks to be reproduced: in words, and resolved to the cells of a paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.errors import HoldfastError, unknown
from holdfast.reproduce.cells import Cell, Setup, TableSelection, cells
from holdfast.reproduce.hand_settings import refuse_mixed_rows
from holdfast.reproduce.paper import PLAIN, SCALES, Paper, PaperTable, Reading
from holdfast.reproduce.readings import every_reading, one_by_one, reading_named
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
        reading: The reading, by name.
        readings: Whether to run the baselines alone, under every reading.
        explain: The reading whose choices are to be tried one at a time, with the baselines alone; empty for none.
    """

    tables: Sequence[str] = (ALL_TABLES,)
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    scale: str = "small"
    seeds: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    reading: str = PLAIN
    readings: bool = False
    explain: str = ""


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
        readings: The readings under which the cells are run.
        cells: The requested cells that can be run, under every one of these readings.
    """

    paper: Paper
    selections: list[TableSelection]
    unmatched: list[str]
    scale: str
    seeds: list[int]
    settings: dict[str, Any]
    readings: list[Reading]
    cells: list[Cell]

    def setup(self, reading: Reading) -> Setup:
        """Return what the cells have in common under one of the readings."""
        return Setup(self.paper, self.scale, self.settings, reading)


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
    readings = requested_readings(request, paper)
    if request.readings or request.explain:
        columns = {id: [j for j, c in enumerate(t.columns) if c.name in t.baselines] for id, t in tables.items()}
    narrowed = bool(request.rows or request.columns or request.readings or request.explain)
    unmatched = [id for id in tables if narrowed and not (rows[id] and columns[id])]
    if len(unmatched) == len(tables) and not any(columns.values()) and (request.readings or request.explain):
        raise HoldfastError(f"no requested table names a baseline, so that there is none to run; {see(paper.name)}")
    if len(unmatched) == len(tables):
        raise HoldfastError(f"no table has both these rows and these columns; {see(paper.name)}")
    selections = [TableSelection(t, rows[id], columns[id]) for id, t in tables.items() if id not in unmatched]
    setups = [Setup(paper, request.scale, request.settings, reading) for reading in readings]
    for setup in setups:
        refuse_mixed_rows(setup, selections)
    every = [cell for setup in setups for s in selections for cell in cells(setup, s)]
    return ResolvedRequest(
        paper=paper,
        selections=selections,
        unmatched=unmatched,
        scale=request.scale,
        seeds=list(range(request.seeds)),
        settings=dict(request.settings),
        readings=readings,
        cells=[cell for cell in every if not cell.absent],
    )


def requested_readings(request: Request, paper: Paper) -> list[Reading]:
    """Return the readings under which a request is run; the plain one comes first where several are compared."""
    if not (request.readings or request.explain):
        return [reading_named(paper, request.reading)]
    flag = "--readings" if request.readings else "--explain"
    if request.columns:
        raise HoldfastError(f"{flag} runs the baselines alone: leave --columns out")
    if request.reading != PLAIN or (request.readings and request.explain):
        raise HoldfastError(
            f"{flag} runs several readings by itself: leave the others of --reading, --readings and --explain out"
        )
    if request.readings:
        return list(every_reading(paper))
    goal = reading_named(paper, request.explain)
    if not goal.choices:
        raise HoldfastError(f"the reading {goal.name!r} makes no choice, so that there is nothing to explain")
    return [reading_named(paper, PLAIN), *one_by_one(goal), goal]


def named_tables(names: Sequence[str], paper: Paper) -> dict[str, PaperTable]:
    """Return the tables with these names, in this order."""
    ids = [id.strip() for text in names for id in text.split(",")]
    return {t.id: t for t in (paper.table if ids == [ALL_TABLES] else map(paper.find, ids))}
