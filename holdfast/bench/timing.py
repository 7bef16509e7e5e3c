"""One measured line of a benchmark, and the table that it belongs to."""

from __future__ import annotations

import datetime
import os
import platform
from dataclasses import dataclass
from typing import Any

import torch

WITH_BASELINE = "| | baseline | Holdfast | ratio | |\n|---|---|---|---|---|"
WITHOUT_BASELINE = "| | Holdfast | |\n|---|---|---|"


@dataclass(frozen=True)
class Timing:
    """A figure of ours, and that of the baseline if there is one, both measured in the same run.

    Attributes:
        suite: The title of the table.
        what: The name of the line.
        ours: Our figure.
        unit: The unit of both figures.
        base: The figure of the baseline.
        note: A remark.
    """

    suite: str
    what: str
    ours: float
    unit: str = "ms"
    base: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times faster ours is."""
        return self.base / self.ours if self.base is not None and self.ours else None

    def line(self) -> str:
        """Return the row of a Markdown table; without a baseline it has no columns for one."""
        ours = f"{number(self.ours)} {self.unit}".rstrip()
        if self.base is None:
            return f"| {self.what} | {ours} | {self.note} |"
        ratio = "" if self.ratio is None else number(self.ratio)
        return f"| {self.what} | {number(self.base)} {self.unit} | {ours} | {ratio} | {self.note} |"

    def text(self, before: Timing | None) -> str:
        """Return the row as Markdown; with a heading, if it belongs to another table than the row before."""
        if before is not None and (before.suite, before.base is None) == (self.suite, self.base is None):
            return self.line()
        head = WITHOUT_BASELINE if self.base is None else WITH_BASELINE
        return f"\n**{self.suite}**\n\n{head}\n{self.line()}"


def number(value: float) -> str:
    """Return a number with three significant digits.

    >>> number(1234.5), number(12.345), number(0.01234)
    ('1234', '12.3', '0.0123')
    """
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def machine(device: str) -> dict[str, Any]:
    """Return the machine, the versions and the date of a measurement."""
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
    }


def processor() -> str:
    """Return the processor's name as the system gives it."""
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
