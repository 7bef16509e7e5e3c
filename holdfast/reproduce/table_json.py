"""The one writer and the one reader of ``reproduce.json``.

Format 4 has readings, baselines and controls, and the data's checksum beside the facts about every run. Format 3 names
run folders by the settings that differ from their defaults. Formats 1 to 3 are read as well: methods get today's names,
folders the names that they have after ``store.upgrade``, and what they lack stays empty.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from holdfast.comparison.study_schema import Spread
from holdfast.method.config import Config
from holdfast.method.renamed import modern
from holdfast.reproduce.run_names import run_name
from holdfast.reproduce.table_schema import CellRecord, CellRuns, ChoiceRecord, ReadingRecord, RowRecord, TableRecord

FORMAT = 4


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
    return whole | {"rows": rows, "reading": asdict(t.reading), "made": {"note": whole.pop("remark")}}


def cell_to_json(c: CellRecord) -> dict[str, Any]:
    """Return a cell with the keys of ``reproduce.json``: what it lacks is left out."""
    cell = asdict(c)
    runs = cell.pop("runs")
    cell |= {"published": number_to_json(c.published), "spread": number_to_json(c.spread)}
    if runs is None:
        return cell
    left_out = () if c.status == "run" else ("seconds", "ours", "difference")
    optional = ("by_class", "leaks_test_data", "exploded")
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
    first: dict[str, Any] = {"needs": "all", "variants": {}, "not_asked": 0} if version == 1 else {}
    if version < 4:
        first |= {"baseline": [], "level_of": "", "same_runs_as": "", "controls": {}, "reading": {}}
    values = {**first, **{k: v for k, v in raw.items() if k != "made"}}
    reading = values["reading"]
    values["reading"] = ReadingRecord(
        **reading | {"choices": [ChoiceRecord(**choice) for choice in reading.get("choices", [])]}
    )
    rows = [
        RowRecord(r["name"], r["note"], [cell_from_json(c, raw["measure"], version) for c in r["cells"]])
        for r in raw["rows"]
    ]
    return TableRecord(**values | {"rows": rows, "remark": raw["made"]["note"]})


def cell_from_json(raw: Mapping[str, Any], measure: str, version: int = FORMAT) -> CellRecord:
    """Return a cell from the keys of ``reproduce.json``.

    Args:
        raw: The cell.
        measure: The measure of its table.
        version: The format of the file.

    Returns:
        The cell, with today's names.
    """
    names = {f.name for f in fields(CellRuns)}
    # The first format kept the device in the cell, and not where and when a run was made.
    first = {"measure": measure, "made": []} if version == 1 else {}
    cell = {k: v for k, v in raw.items() if k not in names and not (version == 1 and k == "device")}
    cell |= {key: None if raw[key] is None else float(raw[key]) for key in ("published", "spread")}
    runs = None
    if "seeds" in raw:
        ours = None if raw.get("ours") is None else Spread(**raw["ours"])
        runs = CellRuns(**{**first, **{k: v for k, v in raw.items() if k in names}, "ours": ours})
    if version < 3:  # a part had another name
        cell["method"] = modern(cell["method"])
        runs = runs and renamed_runs(runs, cell["method"])
    return CellRecord(**cell, runs=runs)


def renamed_runs(runs: CellRuns, method: str) -> CellRuns:
    """Return the runs of an earlier format with the name that their folder has today."""
    return replace(runs, folder=run_name(Config().changed(method=method, **runs.settings)))
