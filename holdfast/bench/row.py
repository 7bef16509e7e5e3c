"""One measured line of a benchmark, and the table of many."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Row:
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
        """The row of a Markdown table."""
        base = "" if self.base is None else f"{number(self.base)} {self.unit}"
        ratio = "" if self.ratio is None else number(self.ratio)
        return f"| {self.what} | {base} | {number(self.ours)} {self.unit} | {ratio} | {self.note} |"


def number(value: float) -> str:
    """Three digits that mean something.

    >>> number(1234.5), number(12.345), number(0.01234)
    ('1234', '12.3', '0.0123')
    """
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def markdown(rows: Iterable[Row]) -> str:
    """The rows as Markdown, a table per suite."""
    text, suite = "", None
    for row in rows:
        if row.suite != suite:
            suite = row.suite
            text += f"\n**{suite}**\n\n| | baseline | Holdfast | ratio | |\n|---|---|---|---|---|\n"
        text += row.line() + "\n"
    return text.lstrip("\n")


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
