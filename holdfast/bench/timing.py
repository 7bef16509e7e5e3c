"""One measured line of a benchmark, and its place in a table."""

from __future__ import annotations

import datetime
import os
import platform
from dataclasses import dataclass
from typing import Any

import torch

BESIDE = "| | baseline | Holdfast | ratio | |\n|---|---|---|---|---|"
ALONE = "| | Holdfast | |\n|---|---|---|"


@dataclass(frozen=True)
class Timing:
    """A figure of ours, beside the baseline's where there is one, both measured in this run."""

    suite: str
    what: str
    ours: float
    unit: str = "ms"
    base: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.base / self.ours if self.base is not None and self.ours else None

    def line(self) -> str:
        """The row of a Markdown table; without a baseline there are no columns for it."""
        ours = f"{number(self.ours)} {self.unit}".rstrip()
        if self.base is None:
            return f"| {self.what} | {ours} | {self.note} |"
        ratio = "" if self.ratio is None else number(self.ratio)
        return f"| {self.what} | {number(self.base)} {self.unit} | {ours} | {ratio} | {self.note} |"

    def text(self, before: Timing | None) -> str:
        """The row as Markdown; where it is of another suite than the one before it, or has other columns, as the first
        of a new table."""
        if before is not None and (before.suite, before.base is None) == (self.suite, self.base is None):
            return self.line()
        head = ALONE if self.base is None else BESIDE
        return f"\n**{self.suite}**\n\n{head}\n{self.line()}"


def number(value: float) -> str:
    """Three digits that mean something.

    >>> number(1234.5), number(12.345), number(0.01234)
    ('1234', '12.3', '0.0123')
    """
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def machine(device: str) -> dict[str, Any]:
    """What was measured on, and when."""
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
    }


def processor() -> str:
    """The processor's name, as the system tells it."""
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
