"""What the parts of the campaign share: small settings, a budget of time, findings, and what a history says."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.process import Ended, holdfast

SMALL = (
    "--model", "linear", "--clients", "5", "--cohort", "3", "--steps", "2", "--batch", "16", "--device", "cpu",
    "--public", "0.05", "--quiet",
)  # fmt: skip
STATEFUL = ("scaffold", "feddyn", "moon", "fedcm", "latest", "fedavgm", "fedgen", "scaffold+moon+fedavgm")
CLOCK = ("date", "seconds", "kappa", "rho", "out", "commit", "checksum")  # what depends on time and place


@dataclass
class Part:
    """One part of the campaign.

    Attributes:
        name: What it does, for the table.
        seconds: Its share of the time.
        most: The largest number of cases.
        folder: An empty folder to work in.
        random: Its random numbers.
        cases: The number of cases so far.
        counts: Other numbers for the table, by name.
        findings: A line for every case that did not end as promised.
    """

    name: str
    seconds: float
    most: int
    folder: Path
    random: random.Random
    cases: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def rounds(self) -> Iterator[Path]:
        """Yield an empty place for every case until the time or the number of cases is used up."""
        end = time.monotonic() + self.seconds
        while self.cases < self.most and (self.cases == 0 or time.monotonic() < end):
            place = self.folder / "case"
            yield place
            self.cases += 1
            remove(place)

    def count(self, name: str, more: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + more

    def find(self, case: str, problem: object) -> None:
        self.findings.append(f"{self.name}: {case}: {problem}".replace(str(self.folder), "."))


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def history(folder: Path) -> list[dict[str, Any]] | str:
    """Return the history of a run without the clock, or why it cannot be read."""
    try:
        lines = (folder / "history.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) | {"seconds": None} for line in lines]
    except (OSError, ValueError) as error:
        return f"unreadable: {error}"


def summary(folder: Path) -> dict[str, Any] | str:
    """Return the summary of a run without what depends on time and place, or why it cannot be read."""
    try:
        read = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        return {name: value for name, value in read.items() if name not in CLOCK}
    except (OSError, ValueError, AttributeError) as error:
        return f"unreadable: {error}"


def outcome(folder: Path) -> dict[str, Any]:
    """Return what every run below a folder found, by its path."""
    runs = sorted(path.parent for path in folder.rglob("config.toml"))
    return {str(run.relative_to(folder)): (history(run), summary(run)) for run in runs}


def difference(folder: Path, whole: Path) -> str:
    """Return how the runs below a folder differ from those of an undisturbed one; empty if they agree."""
    ours, theirs = outcome(folder), outcome(whole)
    if ours.keys() != theirs.keys():
        return f"other runs: {sorted(ours)}, not {sorted(theirs)}"
    for run, (lines, end) in ours.items():
        if lines != theirs[run][0]:
            return f"another history in {run}"
        if end != theirs[run][1]:
            return f"another summary in {run}"
    return ""


def check(part: Part, case: str, ended: Ended, folder: Path, whole: Path) -> None:
    """Note a finding unless a command ended well, with the outcome of an undisturbed one."""
    problem = str(ended) if ended.code else difference(folder, whole)
    if problem:
        part.find(case, problem)


def undisturbed(folder: Path, *args: str) -> tuple[Path, float]:
    """Run a command once for all cases with the same arguments; return its folder and how long it took."""
    clock = folder.with_name(f"{folder.name}.seconds")
    if not clock.exists():
        start = time.monotonic()
        ended = holdfast(*args, "--out", folder)
        if ended.code:
            raise RuntimeError(f"an undisturbed {args} ends with {ended}")
        clock.write_text(str(time.monotonic() - start))
    return folder, float(clock.read_text())
