"""What a user sees of a run in other processes: its history, as it grows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.cli.score_table import positive_of, score_lines
from holdfast.core.errors import HoldfastError
from holdfast.core.terminal_text import say
from holdfast.method.config import Config
from holdfast.runs.client_table import read_client_table
from holdfast.runs.folder import stored_names
from holdfast.runs.history import best_text, read_history
from holdfast.runs.model_facts import read_model_facts
from holdfast.runs.run_files import HISTORY
from holdfast.runs.run_progress import RunProgress, early_end, explosion, over_clients, say_where
from holdfast.tasks.task_names import read_task


class DeploymentProgress:
    """Shows the rounds of the run in a folder, within a ``with`` block."""

    def __init__(
        self, config: Config, out: Path, nodes: int, quiet: bool, resume: bool, guessing: float | None = None
    ) -> None:
        """Show what is about to run.

        Args:
            config: The run.
            out: The run folder.
            nodes: The number of nodes.
            quiet: Whether to show nothing.
            resume: Whether the run is resumed.
            guessing: The loss of a model that guesses, if it is known.
        """
        self.out, self.path, self.stop_after = out, out / HISTORY, config.stop_after
        self.shown = self._lines() if resume else 0
        self.progress = RunProgress(config.method, quiet)
        self.progress.guessing = guessing
        text = (
            f"{config.method} on {config.data}, {config.split} over {config.clients} clients, {config.cohort_size} per "
            f"round; {nodes} nodes and a server on this machine"
        )
        with suppress(HoldfastError):  # the server reports a damaged history
            self.progress.resume(read_history(self.path, self.shown) if self.shown else [])
        self.progress.begin(text, self.shown, config.rounds)

    def update(self) -> None:
        """Show the rounds that have ended since the last call."""
        lines = self._lines()
        if lines <= self.shown:
            return
        self.progress.name_of = stored_names(self.out)
        with suppress(HoldfastError):  # a history that is being cut back is read at the next call
            for record in read_history(self.path, lines)[self.shown :]:
                self.progress.round(record)
            self.shown = lines

    def end(self, s: dict[str, Any]) -> None:
        """Show the summary of the run."""
        if s["final"] is not None:
            say(
                self.progress.console,
                f"{s['metric']} {s['final']:.4f} ({best_text(s)}) after {s['rounds']} rounds and "
                f"{s['seconds']:.1f} s; {s['upload_bytes'] / 1e6:.2f} MB up, {s['download_bytes'] / 1e6:.2f} MB down",
            )
        for line in early_end(s, self.stop_after):
            say(self.progress.console, line)
        for line in self._scores(s):
            self.progress.console.print(line, highlight=False, soft_wrap=True, markup=False)
        for line in [*over_clients(s, read_client_table(self.out)), *explosion(s)]:
            say(self.progress.console, line)
        say_where(self.progress.console, self.out)

    def _scores(self, s: dict[str, Any]) -> list[str]:
        """Return the table of scores beside the floor, as at the end of a run on one machine."""
        with suppress(HoldfastError):  # a task of the user's own may be known to the server alone
            facts = read_model_facts(self.out)
            if facts is not None:
                task = read_task(facts.task)
                return score_lines(s, task.floor, positive_of(task, facts.classes))
        return []

    def __enter__(self) -> DeploymentProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.__exit__()

    def _lines(self) -> int:
        return self.path.read_bytes().count(b"\n") if self.path.exists() else 0
