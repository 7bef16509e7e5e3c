"""What a user sees while a run goes on."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.training.record import RoundRecord
from holdfast.training.round import Trainer


class RunProgress:
    """A live line with round, accuracy, loss, seconds per round and time left; quiet when asked.

    Within ``with`` it starts with the first round, so that an error before that stands alone.
    """

    def __init__(self, title: str, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet)
        self.bar = Progress(
            TextColumn("[bold]{task.description}"), BarColumn(20), MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"), TimeRemainingColumn(), console=self.console,
        )  # fmt: skip
        self.task = self.bar.add_task(title, total=None, state="")
        self.started = False
        self.accuracy: float | None = None
        self.loss: float | None = None
        self.speed: float | None = None

    def start(self, simulation: Trainer, done: int) -> None:
        self.begin(describe(simulation), done, simulation.config.rounds)

    def begin(self, text: str, done: int, rounds: int) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)
        if done == rounds:
            self.console.print(f"finished already, with {done} rounds: nothing to do", highlight=False)
        elif done:
            self.console.print(f"resuming after round {done}", highlight=False)
        self.bar.update(self.task, completed=done, total=rounds)
        self.started = True
        self.bar.start()

    def __enter__(self) -> RunProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.started:
            self.bar.stop()

    def round(self, record: RoundRecord) -> None:
        if record.test_accuracy is not None:
            self.accuracy, self.loss = record.test_accuracy, record.test_loss
        self.speed = record.seconds if self.speed is None else 0.8 * self.speed + 0.2 * record.seconds
        state = f"{self.speed:.2f} s/round"
        if self.accuracy is not None and self.loss is not None:
            state = f"accuracy {self.accuracy:.4f}  loss {self.loss:.4f}  {state}"
        self.bar.update(self.task, completed=record.round, state=state)
        if record.skipped:
            who = ", ".join(map(str, record.skipped))
            self.console.print(
                f"round {record.round}: left out the update of client {who}: not finite", highlight=False
            )
        for client, why in record.failed.items():
            self.console.print(f"round {record.round}: without client {client}: {why}", highlight=False)


def describe(simulation: Trainer) -> str:
    """Two lines on what is about to run."""
    config, fed, net = simulation.config, simulation.federation, simulation.net
    empty = fed.clients - len(simulation.occupied)
    without = f" ({empty} of them without samples)" if empty else ""
    work = f"{config.steps} steps" if config.steps else f"{config.passes} epochs"
    return (
        f"{config.method} on {fed.data.name}, {fed.split} over {fed.clients} clients{without}, "
        f"{simulation.config.cohort_size} per round, {work} of batch {config.batch}\n"
        f"{config.model} with {net.layout.size:,} parameters on {net.device}; engine {simulation.engine_name}: "
        f"{simulation.engine_reason}"
    )


def where(out: Path | str) -> str:
    """The last line on a run that is finished."""
    return f"the run is in {out}; see it: holdfast report {shlex.quote(str(out))}"


@contextmanager
def interruptible(console: Console, told: str = "stopping after this round") -> Iterator[list[bool]]:
    """Within this block the first Ctrl-C only asks to stop (the list becomes non-empty); the second one interrupts."""
    asked: list[bool] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(True)
        console.print(f"{told} (Ctrl-C again: at once)", highlight=False)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
