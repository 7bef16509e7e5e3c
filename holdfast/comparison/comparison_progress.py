"""The live table of a comparison: a row per method with its progress, score and difference so far."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from holdfast.comparison.observers import LineLog, Observer, overview
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.score_text import ScoreText
from holdfast.core.notebook import CellOutput, in_notebook
from holdfast.core.terminal_text import folded, say
from holdfast.training.round_record import RoundRecord

LEAST = 12  # characters of a method's name on one line


def observer(console: Console, quiet: bool) -> Observer:
    """Return a live table for a terminal or a notebook, plain lines for a log, or silence."""
    if quiet:
        return Observer()
    return LiveTable(console) if console.is_terminal or in_notebook() else LineLog()


@dataclass
class LiveRow:
    """One row of the table.

    Attributes:
        label: The label of the entry.
        beside: The row that it is compared with.
        total: Rounds of all its runs.
        rounds: Rounds done, by seed.
        scores: Final scores of the finished runs, by seed.
        now: What is going on.
    """

    label: str
    beside: int
    total: int
    rounds: dict[int, int] = field(default_factory=dict)
    scores: dict[int, float] = field(default_factory=dict)
    now: str = ""


class LiveTable(Observer):
    """A row per method and sweep point; differences are over the seeds that both methods have finished.

    Attributes:
        rows: The rows, by the number of the entry.
        live: The display in a terminal.
        cell: The display in a notebook.
    """

    def __init__(self, console: Console) -> None:
        self.rows: dict[int, LiveRow] = {}
        self.live = Live(console=console, get_renderable=self.view, refresh_per_second=4)
        self.cell = CellOutput() if in_notebook() else None

    def begin(self, tasks: Sequence[PlannedRun], states: Sequence[str]) -> None:
        for task, state in zip(tasks, states, strict=True):
            row = self.rows.setdefault(task.row, LiveRow(task.label, task.beside, 0))
            row.total += task.config.rounds
            if state in ("finished", "diverged"):
                self.end(task, state, "")
            elif state == "started":
                row.rounds[task.config.seed] = task.kept()
        say(self.live.console, overview(tasks, states))
        if self.cell is None:
            self.live.start()
        self._show()

    def round(self, task: PlannedRun, record: RoundRecord) -> None:
        row, seed = self.rows[task.row], task.config.seed
        row.rounds[seed] = record.round
        score = record.test.get(self.metric.metric)
        known = "" if score is None else f": {ScoreText(self.metric.percent, 1, '%').value(score)}"
        row.now = f"seed {seed}, round {record.round}{known}"
        self._show()

    def end(self, task: PlannedRun, state: str, why: str) -> None:
        row, seed = self.rows[task.row], task.config.seed
        row.now = {"finished": "", "stopped": "stopped"}.get(state, f"seed {seed} diverged")
        if state != "stopped":
            row.rounds[seed] = task.config.rounds
        if state == "finished" and task.summary().get("exploded"):
            row.now = f"seed {seed} exploded"
        if state == "finished" and task.summary()["final"] is not None:
            row.scores[seed] = task.summary()["final"]

    def close(self) -> None:
        self.live.stop()
        self._show()

    def _show(self) -> None:
        """Show the table in a notebook; a terminal shows it by itself."""
        if self.cell is not None:
            self.cell.show(self.view())

    def view(self) -> Table:
        title = f"{self.metric.spoken} and difference so far, over finished runs"
        heads = ("method", "done", "runs", self.metric.spoken.replace(" ", "\n"), "difference", "now")
        text = ScoreText(self.metric.percent, sign="%")
        table = Table(
            box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left"
        )
        for head in heads:
            table.add_column(head, no_wrap=True)
        cells = []
        for number in sorted(self.rows):
            row = self.rows[number]
            share = sum(row.rounds.values()) / row.total
            mean = text.value(statistics.fmean(row.scores.values())) if row.scores else ""
            other = self.rows[row.beside].scores if row.beside != number else {}
            gaps = [a - other[seed] for seed, a in row.scores.items() if seed in other]
            gap = text.difference(statistics.fmean(gaps)) if gaps else ""
            cells.append([row.label, f"{share:.0%}", str(len(row.scores)), mean, gap, row.now])
        others = zip(heads[1:], *(row[1:] for row in cells), strict=True)
        taken = sum(2 + max(len(line) for cell in column for line in cell.split("\n")) for column in others)
        for label, *rest in cells:
            table.add_row(Text(folded(label, max(LEAST, self.live.console.width - taken))), *rest)
        return table
