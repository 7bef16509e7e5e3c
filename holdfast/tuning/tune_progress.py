"""The live table of a search: a row per method with its progress and its best setting so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table

from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.score_text import ScoreText
from holdfast.core.notebook import CellOutput, in_notebook
from holdfast.training.round_record import RoundRecord
from holdfast.tuning.search_axis import point_text
from holdfast.tuning.tune_observers import TuneLog, TuneObserver


def tune_observer(console: Console, quiet: bool) -> TuneObserver:
    """Return a live table for a terminal or a notebook, lines for a log, or silence."""
    if quiet:
        return TuneObserver()
    return TuneTable(console) if console.is_terminal or in_notebook() else TuneLog()


@dataclass
class TuneRow:
    """One row of the table.

    Attributes:
        method: The method.
        total: All its rounds, with those on fresh seeds.
        done: The rounds that are done.
        best: The best validation score at the highest rung so far.
        point: The values that had it.
        now: What is going on.
    """

    method: str
    total: int
    done: int
    best: str = ""
    point: str = ""
    now: str = ""


class TuneTable(TuneObserver):
    """A row per method.

    Attributes:
        rows: The rows.
        live: The display in a terminal.
        cell: The display in a notebook.
    """

    def __init__(self, console: Console) -> None:
        self.rows: list[TuneRow] = []
        self.live = Live(console=console, get_renderable=self.view, refresh_per_second=4)
        self.cell = CellOutput() if in_notebook() else None

    def start(self, methods: Sequence[str], rounds: Sequence[int], done: Sequence[int]) -> None:
        self.rows = [TuneRow(*row) for row in zip(methods, rounds, done, strict=True)]
        if self.cell is None:
            self.live.start()
        self._show()

    def round(self, task: PlannedRun, record: RoundRecord) -> None:
        row = self.rows[task.row]
        row.done += 1
        row.now = f"{task.label.rpartition(', ')[2]}, round {record.round}" if task.until else f"round {record.round}"
        self._show()

    def rung(self, method: str, rung: int, trials: int, point: dict[str, Any], score: float | None) -> None:
        row = next(row for row in self.rows if row.method == method)
        row.best = ScoreText(self.metric.percent, 1, " %").value(score) + f" at round {rung}"
        row.point = point_text(point)
        self._show()

    def finals(self) -> None:
        for row in self.rows:
            row.now = "fresh seeds"
        self._show()

    def finish(self) -> None:
        self.live.stop()
        self._show()

    def _show(self) -> None:
        """Show the table in a notebook; a terminal shows it by itself."""
        if self.cell is not None:
            self.cell.show(self.view())

    def view(self) -> Table:
        table = Table(
            box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), title_justify="left",
            title=f"validation {self.metric.spoken} so far",
        )  # fmt: skip
        for head in ("method", "done", "best", "with", "now"):
            table.add_column(head, overflow="fold")
        for row in self.rows:
            share = f"{min(1.0, row.done / row.total):.0%}"
            table.add_row(row.method, share, row.best, row.point, row.now)
        return table
