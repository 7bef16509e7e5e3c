"""Run the cells of a paper's tables, and put ours beside the published numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.comparison.compare import check_numbers
from holdfast.comparison.executor import Executor
from holdfast.comparison.observers import Observer
from holdfast.comparison.runner import LOCK, FolderLock, run_all
from holdfast.comparison.task import Task
from holdfast.core.errors import HoldfastError, unknown
from holdfast.data.sources import data_folder
from holdfast.reproduce.cells import Cell, TableSelection, cells, missing_data, tasks
from holdfast.reproduce.markdown import wanting
from holdfast.reproduce.paper import SCALES, Paper, load_paper
from holdfast.reproduce.record import done, table_record
from holdfast.reproduce.selection import choose, see
from holdfast.reproduce.store import RESULT, keep, noted
from holdfast.training.round_record import RoundRecord

SAVED_EVERY = 10.0  # seconds between two writings of the tables while runs go on


@dataclass(frozen=True)
class Reproduction:
    """What was found: the records of what was asked for, of each table its part, and whether all runs are done."""

    folder: Path
    tables: list[dict[str, Any]]
    without: list[str]  # tables that have none of the rows and columns
    finished: bool


@dataclass(frozen=True)
class Request:
    """What a user asks to be reproduced."""

    paper: Paper
    parts: list[TableSelection]
    without: list[str]
    scale: str
    seeds: list[int]
    changed: dict[str, Any]
    chosen: list[Cell]


def reproduce(
    paper: str,
    table: str | Sequence[str] = "all",
    *,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    scale: str = "small",
    seeds: int = 1,
    jobs: int = 1,
    out: str | Path | None = None,
    collect: bool = False,
    light: bool = False,
    note: str = "",
    watch: Observer | None = None,
    stop: Callable[[], bool] = lambda: False,
    folder: Path | None = None,
    **settings: Any,
) -> Reproduction:
    """Run the cells of ``table`` (or of several, or of all) and compare them with what the paper prints.

    Runs are kept in ``out``, by default one folder per paper and scale, and shared by all tables; what is finished is
    never done again. ``settings`` override the paper's; ``collect`` runs nothing and makes the tables of what is there.
    ``folder`` holds other papers' files than those of the library.
    """
    wish = asked(load_paper(paper, folder), table, rows, columns, scale, seeds, jobs, settings)
    path = Path(out) if out is not None else Path("runs") / f"reproduce-{paper}-{scale}"
    refuse_other_folders(path, collect)
    if not collect:
        refuse_without_data(wish, path)
    bench = Executor()
    runs = [] if collect else tasks([c for c in wish.chosen if not missing_data(c.config)], path, wish.seeds)
    for task in {t.folder.parent: t for t in runs}.values():
        if task.state() in ("new", "started"):
            bench.check(task)
    with FolderLock(path):
        write(path, wish, note)
        measures = dict.fromkeys(cell.measure.words_in(cell.config.rounds) for cell in wish.chosen)
        telling = SavingObserver(watch or Observer(), lambda: write(path, wish, note), measures)
        finished = run_all(runs, bench, jobs, telling, stop, light)
        notes = write(path, wish, note)
    records = [noted(record(wish, part, wish.seeds, path), notes[part.table.id]) for part in wish.parts]
    return Reproduction(path, records, wish.without, finished)


def asked(
    paper: Paper, table: str | Sequence[str], rows: Sequence[str], columns: Sequence[str], scale: str, seeds: int,
    jobs: int, settings: Mapping[str, Any],
) -> Request:  # fmt: skip
    """What is asked for, checked before anything runs."""
    check_numbers(jobs, None)
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if not isinstance(seeds, int) or seeds < 1:
        raise HoldfastError(f"seeds must be a whole number of at least 1, not {seeds}")
    for name in ("method", "seed"):
        if name in settings:
            raise HoldfastError(f"{name} is not a setting of a reproduction: it is the paper's")
    ids = [id.strip() for text in ([table] if isinstance(table, str) else table) for id in text.split(",")]
    tables = {t.id: t for t in (paper.table if ids == ["all"] else map(paper.find, ids))}
    down = choose("row", rows, {id: [r.name for r in t.row] for id, t in tables.items()}, paper.name)
    across = choose("column", columns, {id: [c.name for c in t.columns] for id, t in tables.items()}, paper.name)
    without = [id for id in tables if (rows or columns) and not (down[id] and across[id])]
    if len(without) == len(tables):
        raise HoldfastError(f"no table has both these rows and these columns; {see(paper.name)}")
    parts = [TableSelection(t, down[id], across[id]) for id, t in tables.items() if id not in without]
    chosen = [cell for part in parts for cell in cells(paper, part, scale, settings) if not cell.absent]
    return Request(paper, parts, without, scale, list(range(seeds)), dict(settings), chosen)


def record(wish: Request, part: TableSelection, seeds: Sequence[int] | None, path: Path) -> dict[str, Any]:
    return table_record(wish.paper, part, wish.scale, wish.changed, seeds, path)


def write(path: Path, wish: Request, note: str) -> dict[str, str]:
    """Keep the tables of the wish, whole and with every seed, as they stand."""
    return keep(path, [record(wish, TableSelection.whole(part.table), None, path) for part in wish.parts], note)


def refuse_other_folders(path: Path, collect: bool) -> None:
    if path.exists() and not path.is_dir():
        raise HoldfastError(f"{path} is a file, not a folder for runs: choose another --out")
    if path.is_dir() and not (path / RESULT).exists() and any(p.name != LOCK for p in path.iterdir()):
        raise HoldfastError(f"{path} is not empty and holds no {RESULT}: choose another --out")
    if collect and not (path / RESULT).exists():
        raise HoldfastError(f"nothing was run in {path}: choose another --out, or leave --collect out to run it")


def refuse_without_data(wish: Request, path: Path) -> None:
    """Object where every cell that could be run lacks its data, and none was run where the data is."""
    lacking = [missing_data(cell.config) for cell in wish.chosen]
    there = any(done(cell.task(path, seed).folder) for cell in wish.chosen for seed in wish.seeds)
    if not lacking or not all(lacking) or there:
        return
    folder = data_folder(wish.chosen[0].config.data_dir)
    raise HoldfastError(
        f"nothing can be run: the {wanting(lacking, f'in {folder}')}; name its folder with --data-dir, "
        f"or fetch it: holdfast data fetch {lacking[0].split()[0]} (see: holdfast data list)"
    )


class SavingObserver(Observer):
    """Writes the tables now and then when a run ends, so that a command that is cut off leaves them.

    At the start it says what the tables measure, since the progress of a run is told by its accuracy.
    """

    def __init__(self, watch: Observer, write: Callable[[], object], measures: Iterable[str]) -> None:
        self.watch, self.write, self.measures = watch, write, measures
        self.written = time.monotonic()

    def begin(self, tasks: Sequence[Task], states: Sequence[str]) -> None:
        self.watch.begin(tasks, states)
        if {*states} & {"new", "started"}:
            self.watch.say(f"progress: accuracy of the newest round; in the tables: {', '.join(self.measures)}")

    def round(self, task: Task, record: RoundRecord) -> None:
        self.watch.round(task, record)

    def end(self, task: Task, state: str, why: str) -> None:
        self.watch.end(task, state, why)
        if time.monotonic() > self.written + SAVED_EVERY:
            self.write()
            self.written = time.monotonic()

    def close(self) -> None:
        self.watch.close()
