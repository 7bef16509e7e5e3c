"""What a user sees of a race: a line for every stage, and a bar for the runs of the current one."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.comparison.observers import Observer
from holdfast.comparison.planned_run import PlannedRun
from holdfast.training.round_record import RoundRecord


class RaceProgress(Observer):
    """Shows a race in a terminal; in a log, only the line of every stage."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("rounds"))
        self.bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
        self.stage = self.bar.add_task("", total=None, visible=False)

    def __enter__(self) -> RaceProgress:
        if self.bar.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar.live.is_started:  # in a log it never was, and would end with an empty line
            self.bar.stop()

    def begin(self, tasks: Sequence[PlannedRun], states: Sequence[str]) -> None:
        total = sum(task.config.rounds for task in tasks)
        done = [
            task.config.rounds if state in ("finished", "diverged") else task.kept()
            for task, state in zip(tasks, states, strict=True)
        ]
        self.bar.reset(self.stage, total=total, completed=sum(done), visible=True)

    def round(self, task: PlannedRun, record: RoundRecord) -> None:
        self.bar.update(self.stage, advance=1, description=f"{task.label}, seed {task.config.seed}")

    def say(self, text: str) -> None:
        self.bar.console.print(text, highlight=False, markup=False)
