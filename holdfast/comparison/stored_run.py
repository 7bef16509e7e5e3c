"""A run as it is on disk, read for a comparison."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.comparison.planned_run import RUN_AGAIN
from holdfast.core.errors import HoldfastError
from holdfast.runs.client_table import ClientTable, read_client_table
from holdfast.runs.folder import RunFolder
from holdfast.runs.history import read_history
from holdfast.runs.provenance import made_of
from holdfast.runs.run_files import DIVERGED, HISTORY, SUMMARY
from holdfast.runs.summary_file import check_length, read_summary


@dataclass(frozen=True)
class StoredRun:
    """One run.

    Attributes:
        seed: Its seed.
        history: The lines of its history, one per round.
        summary: Its summary; empty until it is finished.
        why: Why it diverged; empty if it did not.
        made: Where and when it was made, as far as it says.
        table: The final scores of its clients, with ``--client-eval``.
    """

    seed: int
    history: list[dict[str, Any]]
    summary: dict[str, Any]
    why: str
    made: dict[str, str] = field(default_factory=dict)
    table: ClientTable | None = None

    def get(self, name: str) -> Any:
        """Return a figure of the summary, or None."""
        return self.summary.get(name)

    @property
    def traffic(self) -> int | None:
        """Bytes up and down."""
        return self.summary["upload_bytes"] + self.summary["download_bytes"] if self.summary else None


def read_run(folder: Path, seed: int) -> StoredRun:
    """Read a run that is finished or diverged, and check that it is as it was recorded."""
    if (folder / SUMMARY).exists():
        summary, history = read_summary(folder, RUN_AGAIN), read_lines(folder / HISTORY)
        check_length(folder, len(history), summary, RUN_AGAIN)
        RunFolder(folder).check_finished(RUN_AGAIN)
        return StoredRun(seed, history, summary, "", made_of(summary), read_client_table(folder))
    if (folder / DIVERGED).exists():
        why, made = read_diverged(folder / DIVERGED)
        history = read_lines(folder / HISTORY)
        RunFolder(folder).check_finished(RUN_AGAIN)
        return StoredRun(seed, history, {}, why, made)
    raise HoldfastError(f"{folder} holds no finished run: run the comparison again to finish it")


def read_started(folder: Path, seed: int) -> StoredRun:
    """Read a run as far as it is; one that has not started has no history."""
    if (folder / SUMMARY).exists() or (folder / DIVERGED).exists():
        return read_run(folder, seed)
    history = read_lines(folder / HISTORY, growing=True) if (folder / HISTORY).exists() else []
    return StoredRun(seed, history, {}, "")


def read_diverged(path: Path) -> tuple[str, dict[str, str]]:
    """Read why a run diverged, and where it was made; files of older versions hold only the reason."""
    try:
        why, _, made = path.read_text(encoding="utf-8").partition("\n")
        return why, {name: str(value) for name, value in made_of(json.loads(made.strip() or "{}")).items()}
    except (OSError, ValueError, AttributeError) as error:
        raise damaged(path) from error


def read_lines(path: Path, growing: bool = False) -> list[dict[str, Any]]:
    """Read the rounds of a history. If it is ``growing``, an incomplete last line is a round being written."""
    try:
        text = path.read_bytes()
        rounds = len((text.rpartition(b"\n")[0] if growing else text).splitlines())
        return [asdict(record) for record in read_history(path, rounds)]
    except (OSError, HoldfastError) as error:
        raise damaged(path) from error


def damaged(path: Path) -> HoldfastError:
    return HoldfastError(f"{path} is damaged: {RUN_AGAIN}")
