"""What a user sees of a run that goes on in other processes: its history, as it grows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.cli.run_progress import RunProgress, explosion, where
from holdfast.core.errors import HoldfastError
from holdfast.method.config import Config
from holdfast.runs.folder import HISTORY
from holdfast.runs.history import read_history


class DeploymentProgress:
    """Shows the rounds of the run in a folder, within ``with``."""

    def __init__(self, config: Config, out: Path, nodes: int, quiet: bool, resume: bool) -> None:
        self.out, self.path = out, out / HISTORY
        self.seen = self._lines() if resume else 0
        self.watch = RunProgress(config.method, quiet)
        text = (
            f"{config.method} on {config.data}, {config.split} over {config.clients} clients, {config.cohort_size} per "
            f"round; {nodes} nodes and a server on this machine"
        )
        with suppress(HoldfastError):  # the server reports a damaged history
            self.watch.resume(read_history(self.path, self.seen) if self.seen else [])
        self.watch.begin(text, self.seen, config.rounds)

    def look(self) -> None:
        """Show the rounds that have ended since the last look."""
        lines = self._lines()
        if lines <= self.seen:
            return
        with suppress(HoldfastError):  # a history that is being cut back is read at the next look
            for record in read_history(self.path, lines)[self.seen :]:
                self.watch.round(record)
            self.seen = lines

    def end(self, s: dict[str, Any]) -> None:
        if s["final_accuracy"] is not None:
            self.watch.console.print(
                f"accuracy {s['final_accuracy']:.4f} (best {s['best_accuracy']:.4f}) after {s['rounds']} rounds and "
                f"{s['seconds']:.1f} s; {s['upload_bytes'] / 1e6:.2f} MB up, {s['download_bytes'] / 1e6:.2f} MB down",
                highlight=False,
                soft_wrap=True,
            )
        for line in explosion(s):
            self.watch.console.print(line, highlight=False, soft_wrap=True)
        self.watch.console.print(where(self.out), highlight=False, soft_wrap=True, markup=False)

    def __enter__(self) -> DeploymentProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.watch.__exit__()

    def _lines(self) -> int:
        return self.path.read_bytes().count(b"\n") if self.path.exists() else 0
