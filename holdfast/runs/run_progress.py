"""What a user sees while a run is in progress."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from holdfast.core.notebook import CellOutput, in_notebook
from holdfast.core.shell_words import quoted
from holdfast.core.terminal_text import say, say_command
from holdfast.runs.client_table import ClientTable
from holdfast.runs.explosion import explanation, exploded, loss_of_guessing
from holdfast.runs.history import read_history
from holdfast.runs.live_line import LiveLine
from holdfast.runs.loss_jumps import jump
from holdfast.runs.run_files import HISTORY
from holdfast.training.client_scores import WORST
from holdfast.training.round import Trainer
from holdfast.training.round_record import RoundRecord

NAMED = 3  # the most clients that a line names


class RunProgress:
    """A live line with round, accuracy, loss, seconds per round and time left.

    Within ``with`` it appears with the first round, so that an earlier error is shown alone.
    """

    def __init__(self, title: str, quiet: bool = False) -> None:
        # Methods, folders and nodes' messages are printed as they are: none of them is markup.
        self.console = Console(stderr=True, quiet=quiet, markup=False, emoji=False)
        self.bar = LiveLine(self.console)
        self.task = self.bar.add_task(title, total=None, state="")
        self.cell = CellOutput() if in_notebook() else None
        self.started = False
        self.state = ""  # the last scores
        self.speed: float | None = None
        self.losses: list[float | None] = []
        self.name_of: Callable[[int], str] = str  # what to call a client
        self.guessing: float | None = None

    def start(self, trainer: Trainer, done: int, out: Path | None = None) -> None:
        """Describe the run; ``done`` rounds of it are in the folder ``out``, if it has one."""
        self.guessing = loss_of_guessing(trainer.method, trainer.federation)
        self.name_of = trainer.federation.name_of
        self.resume(read_history(out / HISTORY, done) if done and out else [])
        self.begin(describe(trainer), done, trainer.config.rounds)

    def resume(self, records: Sequence[RoundRecord]) -> None:
        """Take the rounds into account that were done before."""
        self.losses = [record.train_loss for record in records if record.trained]

    def begin(self, text: str, done: int, rounds: int) -> None:
        say(self.console, text)
        if done == rounds:
            say(self.console, f"already finished after {done} rounds: nothing to do")
        elif done:
            say(self.console, f"resuming after round {done}")
        self.bar.update(self.task, completed=done, total=rounds)
        self.started = True
        if self.cell is None:
            self.bar.start()
        else:
            self.cell.show(self.bar.get_renderable())

    def __enter__(self) -> RunProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.started and self.cell is None:
            self.bar.stop()

    def say(self, text: str) -> None:
        """Show a line above the live one."""
        say(self.console, text)

    def round(self, record: RoundRecord) -> None:
        known = {name: value for name, value in record.test.items() if value is not None}
        if known:
            self.state = "  ".join(f"{name} {value:.4f}" for name, value in known.items()) + "  "
        self.speed = record.seconds if self.speed is None else 0.8 * self.speed + 0.2 * record.seconds
        spent = "" if record.epsilon is None else f"epsilon {record.epsilon:.2f}  "
        state = f"{self.state}{spent}{self.speed:.2f} s/round"
        self.bar.update(self.task, completed=record.round, state=state)
        if self.cell is not None:
            self.cell.show(self.bar.get_renderable())
        if record.skipped:
            who = f"client{'s' * (len(record.skipped) > 1)} {', '.join(map(self.name_of, record.skipped))}"
            say(self.console, f"round {record.round}: skipped the update of {who}, which is not finite")
        for client, length in record.far.items():
            what = f"the update of client {self.name_of(client)} is {length:g} times as long as the median"
            say(self.console, f"round {record.round}: {what}")
        if record.trained:
            self.losses.append(record.train_loss)
            if (times := jump(self.losses)) is not None:
                what = f"the training loss jumped to {times:.1f} times its usual value"
                say(self.console, f"round {record.round}: {what}")
        if exploded(self.losses, self.guessing) == record.round:
            say(self.console, explanation(record.round))
        for client, why in record.failed.items():
            say(self.console, f"round {record.round}: no update from client {self.name_of(client)}: {why}")


def describe(trainer: Trainer) -> str:
    """Describe in two lines what is about to run."""
    config, fed, net = trainer.config, trainer.federation, trainer.net
    empty = fed.clients - len(trainer.occupied)
    without = f" ({empty} without samples)" if empty else ""
    seed = f" with split seed {fed.seed}" if fed.seed != config.seed else ""
    count, unit = (config.steps, "step") if config.steps else (config.epochs or config.passes, "epoch")
    work = f"{count} local {unit}{'s' * (count != 1)}"
    return (
        f"{config.method} on {config.data}, {fed.split} over {fed.clients} clients{without}{seed}, "
        f"{config.cohort_size} per round, {work} with batches of {config.batch}\n"
        f"{config.model} with {net.layout.size:,} parameters on {net.device}; engine {trainer.engine_name}: "
        f"{trainer.engine_reason}"
    )


def early_end(summary: Mapping[str, Any], stop_after: int | None) -> list[str]:
    """Return the line about an early stop at the end of a run, if there was one."""
    if not summary.get("stopped_early"):
        return []
    patience = f"{stop_after} evaluation{'s' * (stop_after != 1)}"
    return [f"stopped early after round {summary['rounds']}: no better validation score in {patience}"]


def explosion(summary: Mapping[str, Any]) -> list[str]:
    """Return the line about an explosion at the end of a run, if there was one."""
    return [f"this run {explanation(summary['exploded_round'])}"] if summary.get("exploded") else []


def privacy(summary: Mapping[str, Any]) -> list[str]:
    """Return the lines about differential privacy at the end of a run, if it has any."""
    if "neighbours" not in summary:
        return []
    if summary["epsilon"] is None:
        return ["dp without noise: nothing is hidden"]
    return [
        f"differentially private: epsilon {summary['epsilon']:.2f} with delta {summary['delta']:g} "
        f"({summary['neighbours']}), by noise {summary['noise_multiplier']:.3g}",
        f"not covered: {'; '.join(summary['not_covered'])}",
    ]


def on_the_clock(summary: Mapping[str, Any]) -> list[str]:
    """Return the line about the virtual clock at the end of a run, if it has one."""
    if "virtual_seconds" not in summary:
        return []
    missed = {"late": summary["late_updates"], "stopped early at the deadline": summary["shortened_updates"]}
    what = [f"{number} update{'s' * (number != 1)} {how}" for how, number in missed.items() if number]
    return ["; ".join([f"{summary['virtual_seconds']:.1f} s on the virtual clock", *what])]


def over_clients(summary: Mapping[str, Any], table: ClientTable | None) -> list[str]:
    """Return the lines about clients' own test samples at the end of a run, if there are any.

    Args:
        summary: The summary of the run.
        table: The score of every client, of which the worst are named if they are few.

    Returns:
        A line for the model of the run, and one for the clients' fine-tuned copies.
    """
    lines, rows = [], table.rows if table else []
    models = {
        "client_scores": ("on the clients' own test samples", {row.name: row.score for row in rows}),
        "personal_client_scores": ("after fine-tuning there", {row.name: row.personal for row in rows}),
    }
    for kind, (what, scores) in models.items():
        s = summary.get(kind) or {}
        if s.get("mean") is not None and s.get("variance") is not None:
            worst = worst_of({name: v for name, v in scores.items() if v is not None}, s["worst_tenth"] < s["mean"])
            named = f" ({', '.join(worst)})" if 0 < len(worst) <= NAMED and s["worst_tenth"] != s["mean"] else ""
            lines.append(
                f"{what}: {summary['metric']} {s['mean']:.4f} on average, worst tenth {s['worst_tenth']:.4f}{named}, "
                f"standard deviation {math.sqrt(s['variance']):.4f} over {s['scored']} client{'s' * (s['scored'] != 1)}"
            )
    return lines


def worst_of(scores: Mapping[str, float], higher_is_better: bool) -> list[str]:
    """Return the names of the worst tenth of the clients, rounded up.

    >>> worst_of({"Ulm": 0.9, "Bonn": 0.7}, True)
    ['Bonn']
    """
    order = sorted(scores, key=scores.__getitem__, reverse=not higher_is_better)
    names = order[: -(-len(order) // WORST)]
    return [f"client {name}" if name.isdigit() else name for name in names]


def say_where(console: Console, out: Path | str) -> None:
    """Print the last line about a finished run."""
    say_command(console, f"the run is in {out}; to see it", f"holdfast report {quoted(str(out))}")
