"""``reproduce.json``: its tables, rows and cells as typed records, with one writer and one reader.

Format 3 names run folders by the settings that differ from their defaults. Formats 1 and 2 are read as well: the
methods get today's names, the folders the names that they have after ``store.upgrade``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from holdfast.comparison.study_schema import Spread
from holdfast.method.config import Config
from holdfast.method.renamed import modern
from holdfast.reproduce.run_names import run_name

FORMAT = 3
RAN = ("run", "diverged")  # the statuses of a cell with a number of ours, or with the reason why there is none


@dataclass(frozen=True)
class CellRuns:
    """The runs of a cell and what they measured.

    Attributes:
        folder: The folder of the runs, below that of ``reproduce.json``.
        settings: The settings that differ from the defaults of a run.
        rounds: Rounds of every run.
        measure: What is measured, such as ``last5``.
        seeds: The seeds that were run.
        made: Device, date, versions and commit of every run, as far as known.
        seconds: Training time of all runs; None if one diverged.
        ours: What was measured; None if a run diverged.
        difference: Our mean minus the published number, where both exist; never at smoke scale.
        by_class: The mean accuracy of every class, for the measure ``by_class``.
        leaks_test_data: Whether a run used test data in training.
    """

    folder: str
    settings: dict[str, Any]
    rounds: int
    measure: str
    seeds: list[int]
    made: list[dict[str, str]]
    seconds: float | None = None
    ours: Spread | None = None
    difference: float | None = None
    by_class: list[float] = field(default_factory=list)
    leaks_test_data: bool = False


@dataclass(frozen=True)
class CellRecord:
    """One cell: the published number, and ours once it was run.

    Attributes:
        status: ``run``, ``diverged``, ``absent``, ``data absent`` or ``not run``.
        why: The reason, if the status needs one.
        method: The method as a sum.
        unit: The unit of all numbers of the cell.
        less_is_better: Whether lower numbers are better.
        published: The paper's number: None where it prints none, infinity for never.
        spread: The paper's standard deviation, None where it prints none.
        runs: What was run; None if nothing was.
    """

    status: str
    why: str
    method: str
    unit: str
    less_is_better: bool
    published: float | None
    spread: float | None
    runs: CellRuns | None = None

    @property
    def ran(self) -> bool:
        """Whether it was run, to the end or until it diverged."""
        return self.status in RAN

    @property
    def leaks(self) -> bool:
        """Whether one of its runs used test data in training."""
        return self.runs is not None and self.runs.leaks_test_data


@dataclass(frozen=True)
class RowRecord:
    """A row of a table: its name, our note on it, and a cell for every column."""

    name: str
    note: str
    cells: list[CellRecord]


@dataclass(frozen=True)
class TableRecord:
    """A table, or the requested rows and columns of it, with everything that was measured for it.

    Attributes:
        paper: The name of the paper's file.
        title: The paper's title.
        table: The number or name of the table in the paper.
        caption: What the table shows.
        claim: What the paper claims with it.
        note: Our remark.
        why_not: Why the table cannot be run; empty if it can.
        scale: ``smoke``, ``small`` or ``full``.
        changed: Settings that the user changed for all cells.
        reproduction: Whether the settings are the paper's own.
        measure: What is measured, unless a row or column says otherwise.
        unit: Its unit.
        expect: The tests of the claim, such as ``A > B``.
        needs: How many of the tests the claim needs: ``all``, ``most`` or ``all but N``.
        variants: Our variants: column -> the published column that it varies.
        columns: The names of the columns.
        rows: The rows.
        not_asked: How many cells of the table were not requested.
        remark: The user's note on these numbers.
    """

    paper: str
    title: str
    table: str
    caption: str
    claim: str
    note: str
    why_not: str
    scale: str
    changed: dict[str, Any]
    reproduction: bool
    measure: str
    unit: str
    expect: list[str]
    needs: str
    variants: dict[str, str]
    columns: list[str]
    rows: list[RowRecord]
    not_asked: int
    remark: str = ""

    @property
    def cells(self) -> list[CellRecord]:
        """All cells, row by row."""
        return [cell for row in self.rows for cell in row.cells]

    @property
    def runs(self) -> list[CellRuns]:
        """What was run for the cells."""
        return [cell.runs for cell in self.cells if cell.runs is not None]

    @property
    def key(self) -> tuple[str, ...]:
        """What makes it this table and no other: paper, table, scale and changed settings."""
        return self.paper, self.table, self.scale, json.dumps(self.changed, sort_keys=True)

    @property
    def varied(self) -> bool:
        """Whether the user changed more than the precision."""
        return bool(self.changed.keys() - {"precision"})


# -- writing --------------------
def to_json(tables: Iterable[TableRecord]) -> str:
    """Return the text of a ``reproduce.json``."""
    return (
        json.dumps({"format": FORMAT, "tables": [table_to_json(t) for t in tables]}, allow_nan=False, indent=1) + "\n"
    )


def table_to_json(t: TableRecord) -> dict[str, Any]:
    """Return a table with the keys of ``reproduce.json``."""
    whole = {f.name: getattr(t, f.name) for f in fields(t)}
    rows = [{"name": r.name, "note": r.note, "cells": [cell_to_json(c) for c in r.cells]} for r in t.rows]
    return whole | {"rows": rows, "made": {"note": whole.pop("remark")}}


def cell_to_json(c: CellRecord) -> dict[str, Any]:
    """Return a cell with the keys of ``reproduce.json``: what it lacks is left out."""
    cell = asdict(c)
    runs = cell.pop("runs")
    cell |= {"published": number_to_json(c.published), "spread": number_to_json(c.spread)}
    if runs is None:
        return cell
    left_out = () if c.status == "run" else ("seconds", "ours", "difference")
    optional = ("by_class", "leaks_test_data")
    return cell | {k: v for k, v in runs.items() if k not in left_out and (v or k not in optional)}


def number_to_json(value: float | None) -> float | str | None:
    """Return a published number as JSON can hold it: ``inf`` for never."""
    return "inf" if value is not None and math.isinf(value) else value


# -- reading --------------------
def from_json(whole: Mapping[str, Any]) -> list[TableRecord]:
    """Return the tables of a ``reproduce.json``; a KeyError, TypeError or ValueError says that it is none."""
    return [table_from_json(t, format_of(whole)) for t in whole["tables"]]


def format_of(whole: Mapping[str, Any]) -> int:
    """Return the format of a ``reproduce.json``; the first one did not always name it."""
    return int(whole.get("format", 1))


def table_from_json(raw: Mapping[str, Any], version: int = FORMAT) -> TableRecord:
    """Return a table from the keys of ``reproduce.json``."""
    first = {"needs": "all", "variants": {}, "not_asked": 0} if version == 1 else {}
    values = {**first, **{k: v for k, v in raw.items() if k != "made"}}
    rows = [
        RowRecord(r["name"], r["note"], [cell_from_json(c, raw["measure"], version) for c in r["cells"]])
        for r in raw["rows"]
    ]
    return TableRecord(**values | {"rows": rows, "remark": raw["made"]["note"]})


def cell_from_json(raw: Mapping[str, Any], measure: str, version: int = FORMAT) -> CellRecord:
    """Return a cell from the keys of ``reproduce.json``; ``measure`` is the table's."""
    names = {f.name for f in fields(CellRuns)}
    # The first format kept the device in the cell, and not where and when a run was made.
    first = {"measure": measure, "made": []} if version == 1 else {}
    cell = {k: v for k, v in raw.items() if k not in names and not (version == 1 and k == "device")}
    cell |= {key: None if raw[key] is None else float(raw[key]) for key in ("published", "spread")}
    runs = None
    if "seeds" in raw:
        ours = None if raw.get("ours") is None else Spread(**raw["ours"])
        runs = CellRuns(**{**first, **{k: v for k, v in raw.items() if k in names}, "ours": ours})
    if version < FORMAT:
        cell["method"] = modern(cell["method"])
        runs = runs and renamed_runs(runs, cell["method"])
    return CellRecord(**cell, runs=runs)


def renamed_runs(runs: CellRuns, method: str) -> CellRuns:
    """Return the runs of an earlier format with the name that their folder has today."""
    values = {f.name: getattr(runs, f.name) for f in fields(runs)}
    return CellRuns(**values | {"folder": run_name(Config().changed(method=method, **runs.settings))})
