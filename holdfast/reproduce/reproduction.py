"""Run the cells of a paper's tables, and compare our numbers with the published ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.comparison.compare import check_numbers
from holdfast.comparison.executor import Executor
from holdfast.comparison.observers import Observer
from holdfast.comparison.plan_schema import PROCESS
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.pool_choice import check_pool
from holdfast.comparison.runner import refuse_mixed_meanings, run_all
from holdfast.core.errors import HoldfastError
from holdfast.core.folder_lock import LOCK, FolderLock
from holdfast.data.sources import data_folder
from holdfast.reproduce.cells import TableSelection, missing_data, tasks
from holdfast.reproduce.collect import done, table_record
from holdfast.reproduce.markdown import lacking
from holdfast.reproduce.paper import PLAIN
from holdfast.reproduce.paper_file import load_paper
from holdfast.reproduce.request import Request, ResolvedRequest, resolve
from holdfast.reproduce.store import RESULT, keep, upgrade
from holdfast.reproduce.table_schema import TableRecord
from holdfast.runs.file_imports import with_imports
from holdfast.training.round_record import RoundRecord

SAVED_EVERY = 10.0  # seconds between two updates of the tables during runs


@dataclass(frozen=True)
class Reproduction:
    """What was measured.

    Attributes:
        folder: The folder of the runs.
        tables: The requested rows and columns of every table.
        unmatched: Tables without any of the requested rows and columns.
        finished: Whether all runs are done.
    """

    folder: Path
    tables: list[TableRecord]
    unmatched: list[str]
    finished: bool


def reproduce(
    paper: str,
    table: str | Sequence[str] = "all",
    *,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    scale: str = "small",
    seeds: int = 1,
    jobs: int = 1,
    executor: str = PROCESS,
    out: str | Path | None = None,
    collect: bool = False,
    light: bool = False,
    together: bool | None = None,
    note: str = "",
    reading: str = PLAIN,
    readings: bool = False,
    explain: str = "",
    watch: Observer | None = None,
    stop: Callable[[], bool] = lambda: False,
    folder: Path | None = None,
    **settings: Any,
) -> Reproduction:
    """Run cells of a paper's tables and compare them with the published numbers. Finished runs are never run again.

    Args:
        paper: The name of the paper's file.
        table: A table, several, or ``all``.
        rows: Rows by number, name or part of a name; default: all.
        columns: Columns, likewise.
        scale: ``smoke``, ``small`` or ``full``, which is the paper's own setting.
        seeds: Runs of every cell.
        jobs: Runs at a time, each in its own process.
        executor: Where these processes are: ``process`` for this machine, ``ray``, ``ray://host:port`` or ``slurm``.
        out: The folder of the runs, which all tables share; default: ``runs/reproduce-PAPER-SCALE``.
        collect: Run nothing, and make the tables of what is in the folder.
        light: Delete the checkpoint of every finished run.
        together: Whether runs that differ in nothing but seeds, learning rates and numbers of parts share compiled
            steps; None: on a GPU.
        note: A sentence to keep with the numbers.
        reading: The reading of the paper, by name.
        readings: Run the baselines alone, under every reading.
        explain: Run the baselines alone, under this reading and under each of its choices by itself.
        watch: Is told about the progress of the runs.
        stop: Is asked after every round whether to stop.
        folder: The folder of the papers' files; default: those of the library.
        settings: Settings that override the paper's.

    Returns:
        The requested tables, and whether all runs are done.
    """
    check_numbers(jobs, None)
    check_pool(executor)
    settings = with_imports(settings)
    names = (table,) if isinstance(table, str) else table
    request = resolve(
        Request(names, rows, columns, scale, seeds, settings, reading, readings, explain), load_paper(paper, folder)
    )
    path = Path(out) if out is not None else Path("runs") / f"reproduce-{paper}-{scale}"
    open_folder(path, collect)
    carrier = Executor()
    runs = [] if collect else checked_tasks(request, path, carrier)
    with FolderLock(path):
        refuse_mixed_meanings(runs)
        save(path, request, note)
        measures = dict.fromkeys(cell.measure.words_in(cell.config.rounds) for cell in request.cells)
        observer = SavingObserver(watch or Observer(), lambda: save(path, request, note), measures)
        finished = run_all(runs, carrier, jobs, observer, stop, light, executor, together)
        notes = save(path, request, note)
    records = [
        replace(table_record(request.setup(each), selection, request.seeds, path), remark=notes[selection.table.id])
        for selection in request.selections
        for each in request.readings
    ]
    return Reproduction(path, records, request.unmatched, finished)


def save(path: Path, request: ResolvedRequest, note: str) -> dict[str, str]:
    """Write the requested tables as they are now, whole and with every seed.

    Args:
        path: The folder of the runs.
        request: Whose tables to write.
        note: The user's note on their numbers.

    Returns:
        The note of each table.
    """
    whole = [TableSelection.whole(selection.table) for selection in request.selections]
    tables = [table_record(request.setup(reading), each, None, path) for each in whole for reading in request.readings]
    return keep(path, tables, note)


def open_folder(path: Path, collect: bool) -> None:
    """Check that the folder may be used, and bring one of an earlier format up to date."""
    if path.exists() and not path.is_dir():
        raise HoldfastError(f"{path} is a file, not a folder for runs: choose another --out")
    if (path / RESULT).exists():
        with FolderLock(path):
            upgrade(path)
    elif path.is_dir() and any(p.name != LOCK for p in path.iterdir()):
        raise HoldfastError(f"{path} is not empty and holds no {RESULT}: choose another --out")
    elif collect:
        raise HoldfastError(f"nothing was run in {path}: choose another --out, or leave --collect out to run it")


def checked_tasks(request: ResolvedRequest, path: Path, executor: Executor) -> list[PlannedRun]:
    """Return the runs whose data is available, checked before anything runs.

    Args:
        request: The cells to run.
        path: The folder of the runs.
        executor: Checks the runs.

    Returns:
        The runs, finished ones included.
    """
    refuse_without_data(request, path)
    runs = tasks([c for c in request.cells if not missing_data(c.config)], path, request.seeds)
    for task in {t.folder.parent: t for t in runs}.values():
        if task.state() in ("new", "started"):
            executor.check(task)
    return runs


def refuse_without_data(request: ResolvedRequest, path: Path) -> None:
    """Refuse a request if the data of all its cells is missing; runs that were copied from elsewhere are fine."""
    missing = [missing_data(cell.config) for cell in request.cells]
    there = any(done(cell.task(path, seed).folder) for cell in request.cells for seed in request.seeds)
    if not missing or not all(missing) or there:
        return
    folder = data_folder(request.cells[0].config.data_dir)
    raise HoldfastError(
        f"nothing can be run: {lacking(missing, f' in {folder}')}; give its folder with --data-dir, "
        f"or fetch it: holdfast data fetch {missing[0].split()[0]} (see: holdfast data list)"
    )


class SavingObserver(Observer):
    """Saves the tables from time to time when a run ends, so that an interrupted command leaves them behind.

    At the start it says what the tables measure, since progress is reported as accuracy.
    """

    def __init__(self, watch: Observer, save: Callable[[], object], measures: Iterable[str]) -> None:
        self.watch, self.save, self.measures = watch, save, measures
        self.saved_at = time.monotonic()

    def begin(self, tasks: Sequence[PlannedRun], states: Sequence[str]) -> None:
        self.watch.begin(tasks, states)
        if {*states} & {"new", "started"}:
            self.watch.say(f"progress: accuracy of the newest round; in the tables: {', '.join(self.measures)}")

    def round(self, task: PlannedRun, record: RoundRecord) -> None:
        self.watch.round(task, record)

    def end(self, task: PlannedRun, state: str, why: str) -> None:
        self.watch.end(task, state, why)
        if time.monotonic() > self.saved_at + SAVED_EVERY:
            self.save()
            self.saved_at = time.monotonic()

    def close(self) -> None:
        self.watch.close()
