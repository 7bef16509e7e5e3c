"""Cells of papers' tables as ``reproduce`` runs them, with three seeds, over some of their rounds."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.bench.timing import Timing
from holdfast.bench.workload import images
from holdfast.comparison.executor import Executor
from holdfast.comparison.observers import Observer
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.run_batch import run_groups
from holdfast.comparison.together import batches
from holdfast.reproduce.cells import Cell, Setup, cell
from holdfast.reproduce.paper import Reading
from holdfast.reproduce.paper_file import load_paper
from holdfast.runs.folder import RunFolder
from holdfast.runs.run import carry_out
from holdfast.runs.run_options import RunOptions
from holdfast.runs.setup import MakeTrainer
from holdfast.training.round_record import RoundRecord

SUITE = "Cells of tables as users start them, three seeds, evaluated every round, on random images of CIFAR-10's size"
WARM_UP = 2  # rounds that do not count for the pace


class PaperCell(NamedTuple):
    """A cell: its paper, its table, its row and its column, and the precision with which it is run."""

    paper: str
    table: str
    row: str
    column: str
    precision: str


CELLS = (
    PaperCell("fedbug", "1", "CIFAR-10, 10% participation, Dir(0.3), FedAvg", "40%", "tf32"),
    PaperCell("fednlr", "1", "CIFAR-10, Dir(0.3)", "FedNLR", "bf16"),
)


def rows(only: str = "", rounds: int = 20, **settings: Any) -> Iterator[Timing]:
    """Time some rounds of each cell, and extrapolate to all of its rounds.

    Args:
        only: Leave out other cells than those of papers whose name contains this.
        rounds: The rounds to time; two more come first.
        settings: Settings that replace those of the cells.

    Yields:
        A line for each cell.
    """
    for known in CELLS:
        if only in known.paper:
            yield from timed_cell(known, found(known, settings), rounds)


def found(known: PaperCell, settings: dict[str, Any]) -> Cell:
    """Return a cell of a table at full scale."""
    paper = load_paper(known.paper)
    table = next(t for t in paper.table if t.id == known.table)
    row = [r.name for r in table.row].index(known.row)
    column = [c.name for c in table.columns].index(known.column)
    changed = {"precision": known.precision, **settings}
    return cell(Setup(paper, "full", changed, Reading("plain", ())), table, row, column)


def timed_cell(known: PaperCell, cell: Cell, rounds: int) -> Iterator[Timing]:
    """Run three seeds of a cell as one batch.

    Args:
        known: Where the cell is.
        cell: The cell.
        rounds: The rounds to time.

    Yields:
        The line.
    """
    fed = images((3, 32, 32), 500, 100, tests=10_000)
    with tempfile.TemporaryDirectory(dir=".", prefix=".holdfast-bench-") as folder:
        tasks = [cell.task(Path(folder), seed) for seed in range(3)]
        short = cell.config.changed(rounds=rounds + WARM_UP)
        tasks = [PlannedRun(0, 0, t.label, short.changed(seed=t.config.seed), t.method, t.folder) for t in tasks]
        executor, watch = NewRuns(fed.data), Pace()
        started = time.perf_counter()
        run_groups(batches(tasks, True), executor, watch, lambda: False, light=False)
        whole = time.perf_counter() - started
    seconds = (watch.ends[rounds + WARM_UP] - watch.ends[WARM_UP]) / rounds
    every = cell.config.rounds
    note = f"{seconds * 1e3:.0f} ms a round of all three; {rounds} rounds were timed, and "
    note += f"{whole - seconds * (rounds + WARM_UP):.0f} s more to start and to end; {'; '.join(watch.said) or 'alone'}"
    what = f"{known.paper}, table {known.table}: {cell.label}, {known.precision}, {every} rounds"
    yield Timing(SUITE, what, whole + seconds * (every - rounds - WARM_UP), "s", note=note)


class NewRuns(Executor):
    """Carries out new runs; they have no folder where the package is missing that writes checkpoints."""

    def carry_out(
        self,
        task: PlannedRun,
        on_round: Callable[[RoundRecord], None],
        stop: Callable[[], bool],
        light: bool = False,
        make_trainer: MakeTrainer | None = None,
    ) -> tuple[str, str]:
        """Carry out a run."""
        kept = find_spec("safetensors") is not None
        options = RunOptions(RunFolder(task.folder) if kept else None, on_round=on_round, stop=stop)
        carry_out(task.config, task.method, self.federation(task.config), self.model, options, make_trainer)
        return "finished", ""


class Pace(Observer):
    """Notes when the last run of a batch has ended a round.

    Attributes:
        ends: The time by the round.
        said: What the batch said.
    """

    def __init__(self) -> None:
        self.ends: dict[int, float] = {}
        self.said: list[str] = []

    def round(self, task: PlannedRun, record: RoundRecord) -> None:
        self.ends[record.round] = time.perf_counter()

    def say(self, text: str) -> None:
        self.said.append(text)
