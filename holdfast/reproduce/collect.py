"""From run folders to table records: every cell with the published number, ours, and the difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.comparison.result import explosions
from holdfast.comparison.stored_run import StoredRun, read_run
from holdfast.method.config import with_role
from holdfast.reproduce.cells import Cell, Setup, TableSelection, cells, missing_data
from holdfast.reproduce.expectations import reaches
from holdfast.reproduce.measure import classes_over_seeds, over_seeds
from holdfast.reproduce.readings import choices_of
from holdfast.reproduce.table_schema import CellRecord, CellRuns, ChoiceRecord, ReadingRecord, RowRecord, TableRecord
from holdfast.runs.run_files import DIVERGED, SUMMARY


def table_record(setup: Setup, selection: TableSelection, seeds: Sequence[int] | None, out: Path) -> TableRecord:
    """Collect the selected cells of a table as far as they were run in ``out``, by this command or an earlier one.

    Args:
        setup: The paper, its reading, the scale and the user's settings.
        selection: The table and its rows and columns.
        seeds: The seeds to collect; None for all that were run.
        out: The folder of the runs.

    Returns:
        The record, without a note of the user.
    """
    paper, table = setup.paper, selection.table
    changed = {k: v for k, v in setup.changed.items() if k not in with_role("place")}
    columns = [table.columns[j].name for j in selection.columns]
    names = [table.row[i].name for i in selection.rows]
    variants = {c.name: c.variant_of for c in table.columns if c.variant_of and c.name in columns}
    records = [cell_record(cell, setup.scale, seeds, out) for cell in cells(setup, selection)]
    choices = choices_of(paper, setup.reading)
    width = len(columns)
    return TableRecord(
        paper=paper.name,
        title=paper.title,
        table=table.id,
        caption=table.caption,
        claim=table.claim,
        note=table.note,
        why_not=table.why_not,
        scale=setup.scale,
        reading=ReadingRecord(
            setup.reading.name, setup.reading.why, [ChoiceRecord(c.name, c.why, c.source) for c in choices]
        ),
        changed=changed,
        reproduction=setup.scale == "full" and not changed.keys() - {"precision"},
        measure=table.measure,
        unit=table.unit,
        expect=reaches(table.expect, [*columns, *variants.values()], names),
        needs=table.needs,
        baseline=[name for name in table.baselines if name in columns],
        level_of=table.level_of,
        same_runs_as=table.same_runs_as,
        variants=variants,
        controls={c.name: c.control for c in table.columns if c.control and c.name in columns},
        columns=columns,
        rows=[
            RowRecord(names[k], table.row[i].note, records[k * width : (k + 1) * width])
            for k, i in enumerate(selection.rows)
        ],
        not_asked=len(table.row) * len(table.columns) - len(records),
    )


def cell_record(cell: Cell, scale: str, seeds: Sequence[int] | None, out: Path) -> CellRecord:
    """Collect one cell; the arguments are those of ``table_record``."""
    record = CellRecord(
        status="not run",
        why="",
        method=cell.config.method,
        unit=cell.unit,
        less_is_better=cell.measure.less_is_better,
        published=known(cell.published),
        spread=known(cell.spread),
    )
    if cell.absent:
        return replace(record, status="absent", why=cell.absent)
    folders = {s: cell.task(out, s).folder for s in (seeds_in(out / cell.folder) if seeds is None else seeds)}
    runs = [read_run(folder, seed) for seed, folder in folders.items() if done(folder)]
    if not runs:
        why = missing_data(cell.config)
        return replace(record, status="data absent", why=why) if why else record
    diverged = [run for run in runs if run.why]
    if diverged:
        why = f"{len(diverged)} of {len(runs)} seeds: {diverged[0].why}"
        return replace(record, status="diverged", why=why, runs=cell_runs(cell, runs))
    return replace(record, status="run", runs=measured(cell, runs, scale))


def cell_runs(cell: Cell, runs: Sequence[StoredRun]) -> CellRuns:
    """Describe the runs of a cell, without what they measured."""
    return CellRuns(
        folder=cell.folder,
        settings=cell.settings(),
        rounds=cell.config.rounds,
        measure=str(cell.measure),
        seeds=[run.seed for run in runs],
        made=[run.made for run in runs],
    )


def measured(cell: Cell, runs: Sequence[StoredRun], scale: str) -> CellRuns:
    """Describe the runs of a cell, with what they measured. A smoke test has no difference: it runs on other data.

    Args:
        cell: The cell.
        runs: Its finished runs.
        scale: ``smoke``, ``small`` or ``full``.

    Returns:
        The runs.
    """
    ours = over_seeds(cell.measure, runs, cell.unit)
    comparable = scale != "smoke" and math.isfinite(cell.published)
    return replace(
        cell_runs(cell, runs),
        seconds=sum(float(run.summary["seconds"]) for run in runs),
        ours=ours,
        difference=ours.mean - cell.published if comparable and ours.mean is not None else None,
        by_class=classes_over_seeds(cell.measure, runs, cell.unit),
        leaks_test_data=any(run.get("leaks_test_data") for run in runs),
        exploded=[run.seed for run in explosions(runs)],
    )


def seeds_in(folder: Path) -> list[int]:
    """Return the seeds of the runs in a cell's folder."""
    names = [path.name.removeprefix("seed-") for path in folder.glob("seed-*")]
    return sorted(int(name) for name in names if name.isdecimal())


def done(folder: Path) -> bool:
    """Return whether a run is finished or diverged."""
    return (folder / SUMMARY).exists() or (folder / DIVERGED).exists()


def known(value: float) -> float | None:
    """Return a published number, None where there is none."""
    return None if math.isnan(value) else value
