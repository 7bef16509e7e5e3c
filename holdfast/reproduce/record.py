"""From run folders to ``reproduce.json``: every cell with the published number, ours, and the difference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.comparison.stored_run import read_run
from holdfast.reproduce.cells import PLACE, Cell, TableSelection, cells, missing_data
from holdfast.reproduce.claims import reaches
from holdfast.reproduce.measure import classes_over_seeds, over_seeds
from holdfast.reproduce.paper import Paper
from holdfast.runs.folder import DIVERGED, SUMMARY


def table_record(
    paper: Paper, part: TableSelection, scale: str, changed: Mapping[str, Any], seeds: Sequence[int] | None, out: Path
) -> dict[str, Any]:
    """A part of a table as far as it was run in ``out``: cells of earlier commands count, too.

    Without ``seeds`` it is of all those that were run.
    """
    table = part.table
    told = {k: v for k, v in changed.items() if k not in PLACE}
    columns = [table.columns[j].name for j in part.columns]
    names = [table.row[i].name for i in part.rows]
    variants = {c.name: c.variant_of for c in table.columns if c.variant_of and c.name in columns}
    every = [cell_record(cell, scale, seeds, out) for cell in cells(paper, part, scale, changed)]
    wide = len(columns)
    return {
        "paper": paper.name,
        "title": paper.title,
        "table": table.id,
        "caption": table.caption,
        "claim": table.claim,
        "note": table.note,
        "why_not": table.why_not,
        "scale": scale,
        "changed": told,
        "reproduction": scale == "full" and not told.keys() - {"precision"},
        "measure": table.measure,
        "unit": table.unit,
        "expect": reaches(table.expect, [*columns, *variants.values()], names),
        "needs": table.needs,
        "variants": variants,
        "columns": columns,
        "rows": [
            {"name": names[k], "note": table.row[i].note, "cells": every[k * wide : (k + 1) * wide]}
            for k, i in enumerate(part.rows)
        ],
        "not_asked": len(table.row) * len(table.columns) - len(every),
    }


def cell_record(cell: Cell, scale: str, seeds: Sequence[int] | None, out: Path) -> dict[str, Any]:
    """One cell. Its status is ``run``, ``diverged``, ``absent``, ``data absent`` or ``not run``.

    A smoke test has no difference: it is made on other data.
    """
    wanted = seeds_in(out / cell.folder) if seeds is None else seeds
    runs = [read_run(cell.task(out, s).folder, s) for s in wanted if done(cell.task(out, s).folder)]
    found: dict[str, Any] = {
        "status": "not run",
        "why": "",
        "method": cell.config.method,
        "unit": cell.unit,
        "less_is_better": cell.measure.less_is_better,
        "published": plain(cell.published),
        "spread": plain(cell.spread),
    }
    if cell.absent:
        return found | {"status": "absent", "why": cell.absent}
    if not runs:
        why = missing_data(cell.config)
        return found | ({"status": "data absent", "why": why} if why else {})
    found |= {"folder": cell.folder, "settings": cell.settings(), "rounds": cell.config.rounds}
    found |= {"measure": str(cell.measure)}
    found |= {"seeds": [run.seed for run in runs], "made": [run.made for run in runs]}
    broken = [run for run in runs if run.why]
    if broken:
        return found | {"status": "diverged", "why": f"{len(broken)} of {len(runs)} seeds: {broken[0].why}"}
    ours = over_seeds(cell.measure, runs, cell.unit)
    known = scale != "smoke" and ours["mean"] is not None and math.isfinite(cell.published)
    extra: dict[str, Any] = {"leaks_test_data": True} if any(run.get("leaks_test_data") for run in runs) else {}
    classes = classes_over_seeds(cell.measure, runs, cell.unit)
    extra |= {"by_class": classes} if classes else {}
    return found | extra | {
        "status": "run",
        "seconds": sum(float(run.summary["seconds"]) for run in runs),
        "ours": ours,
        "difference": ours["mean"] - cell.published if known else None,
    }  # fmt: skip


def seeds_in(folder: Path) -> list[int]:
    """The seeds of the runs in a cell's folder."""
    names = [path.name.removeprefix("seed-") for path in folder.glob("seed-*")]
    return sorted(int(name) for name in names if name.isdecimal())


def done(folder: Path) -> bool:
    return (folder / SUMMARY).exists() or (folder / DIVERGED).exists()


def plain(value: float) -> float | str | None:
    """A published number for JSON: None where nothing is printed, ``inf`` for never."""
    if math.isnan(value):
        return None
    return "inf" if math.isinf(value) else value
