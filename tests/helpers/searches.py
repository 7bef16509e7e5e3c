"""Searches on disk: small ones, and what must be the same in two of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.commands import facts

SMALL = (
    "--model", "linear", "--clients", "6", "--cohort", "2", "--steps", "2", "--rounds", "3", "--trials", "5", "--seeds",
    "2", "--batch", "16",
)  # fmt: skip


def result(folder: Path | str) -> dict[str, Any]:
    return json.loads((Path(folder) / "tune.json").read_text())


def essence(folder: Path | str) -> list[dict[str, Any]]:
    """Everything in the result of a search but the clock, with the histories of its runs."""
    entries = [entry | {"seconds": None} for entry in result(folder)["entries"]]
    runs = sorted(path.parent for path in Path(folder).glob("*/**/history.jsonl"))
    return [*entries, {str(run.relative_to(folder)): facts(run) for run in runs}]
