"""One run of a comparison or reproduction: what it is, and how far it is on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.method.config import Config
from holdfast.method.method import Method
from holdfast.runs.code_files import refuse_changed_files
from holdfast.runs.folder import RunFolder
from holdfast.runs.meaning_changes import changed_meaning
from holdfast.runs.resume import first_difference
from holdfast.runs.run_files import CONFIG, DIVERGED, SUMMARY
from holdfast.runs.summary_file import read_summary

RUN_AGAIN = "delete that run's folder to run it again"


@dataclass(frozen=True)
class PlannedRun:
    """One run in a folder of its own.

    Attributes:
        row: The number of its entry, and of its line in the live table.
        beside: The number of the entry that it is compared with.
        label: The label of its entry.
        config: The settings of the run.
        method: The method that the config names, or an object that only Python can provide.
        folder: Where the run is kept.
        until: The round after which the run pauses; None if it is not to pause before its end.
    """

    row: int
    beside: int
    label: str
    config: Config
    method: Method
    folder: Path
    until: int | None = None

    def state(self) -> str:
        """Return ``new``, ``started``, ``paused``, ``finished`` or ``diverged``.

        A folder that holds another run is an error.
        """
        if not (self.folder / CONFIG).exists():
            return "new"
        stored = RunFolder(self.folder).stored()
        refuse_changed_files(stored, self.config, self.folder)
        found = first_difference(stored, vars(self.config))
        if found:
            raise HoldfastError(
                f"{self.folder} holds another run, with {found.name} = {found.stored}, not {found.asked}: "
                "choose another --out, or start over with --overwrite"
            )
        if (self.folder / SUMMARY).exists():
            return "finished"
        if (self.folder / DIVERGED).exists():
            return "diverged"
        return "paused" if self.until is not None and self.kept() >= self.until else "started"

    def kept(self) -> int:
        """Return the last round that has a checkpoint; 0 if the run has to start from scratch."""
        names = [path.stem.removeprefix("round-") for path in RunFolder(self.folder).checkpoint.glob("round-*.json")]
        return max((int(name) for name in names if name.isdecimal()), default=0)

    def changed_meaning(self) -> str | None:
        """Return what an earlier version did otherwise in this run, or None if its rounds mean the same today."""
        return changed_meaning(RunFolder(self.folder), self.config, self.method)

    def summary(self) -> dict[str, Any]:
        """Return the summary of a finished run."""
        return read_summary(self.folder, RUN_AGAIN)
