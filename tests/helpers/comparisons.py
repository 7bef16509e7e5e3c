"""Comparisons on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TINY = ("--model", "linear", "--clients", "6", "--cohort", "2", "--steps", "2", "--rounds", "3")


def stamps(folder: Path | str) -> dict[str, int]:
    """When each run's files were last written."""
    return {str(p): p.stat().st_mtime_ns for p in sorted(Path(folder).glob("*/seed-*/*")) if p.is_file()}


def found(folder: str) -> dict[str, Any]:
    return json.loads((Path(folder) / "compare.json").read_text())
