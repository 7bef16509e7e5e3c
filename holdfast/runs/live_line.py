"""The live line of a run: its name, a bar and its scores; several lines where the terminal is narrow."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from holdfast.core.terminal_text import folded

BAR = 20  # characters


class LiveLine(Progress):
    """A progress bar whose tasks have a ``state``: the last scores, as words."""

    def __init__(self, console: Console) -> None:
        super().__init__(BarColumn(BAR), MofNCompleteColumn(), TimeRemainingColumn(), console=console)

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            yield FittedLine(task, self.make_tasks_table([task]))


class FittedLine:
    """Name, bar and scores side by side where they fit, otherwise below each other."""

    def __init__(self, task: Task, bar: Table) -> None:
        self.name, self.bar, self.scores = task.description, bar, task.fields["state"]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        taken = console.measure(self.bar, options=options).maximum
        name = Text(folded(self.name, width), "bold")
        if len(self.name) + len(self.scores) + taken + 2 <= width:
            yield beside(name, self.bar, Text(self.scores))
            return
        if len(self.name) + taken + 1 <= width:
            yield beside(name, self.bar)
        else:
            yield name
            yield self.bar
        yield Text(folded(self.scores, width))


def beside(*parts: RenderableType) -> Table:
    """Return renderables next to each other."""
    line = Table.grid(padding=(0, 1))
    line.add_row(*parts)
    return line
