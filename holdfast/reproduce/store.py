"""``reproduce.json`` and ``reproduce.md`` of a folder: all tables that were made of its runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_atomically
from holdfast.reproduce.markdown import section

FORMAT = 2
RESULT, PAGE = "reproduce.json", "reproduce.md"
SHARED = (
    "Cells of equal settings share a run: one that no command asked for is listed, too, where the run of another cell "
    "gives its number.\n"
)


def keep(path: Path, tables: Sequence[dict[str, Any]], note: str) -> dict[str, str]:
    """Write these tables; those of other commands in the same folder stay.

    Returns the note of each: a command without one leaves it as it was.
    """
    before = {key(t): t for t in read(path / RESULT)}
    fresh = {key(t): noted(t, note or before.get(key(t), noted(t, ""))["made"]["note"]) for t in tables}
    every = list((before | fresh).values())
    write_atomically(path / RESULT, json.dumps({"format": FORMAT, "tables": every}, allow_nan=False, indent=1) + "\n")
    write_atomically(path / PAGE, "\n".join([*([SHARED] if shared(every) else []), *map(section, every)]))
    return {t["table"]: t["made"]["note"] for t in fresh.values()}


def noted(t: dict[str, Any], note: str) -> dict[str, Any]:
    return t | {"made": {"note": note}}


def shared(tables: Sequence[dict[str, Any]]) -> bool:
    """Whether a run stands behind several numbers."""
    runs = [c["folder"] for t in tables for row in t["rows"] for c in row["cells"] if "seeds" in c]
    return len(set(runs)) < len(runs)


def key(t: dict[str, Any]) -> tuple[str, ...]:
    return t["paper"], t["table"], t["scale"], json.dumps(t["changed"], sort_keys=True)


def read(path: Path) -> list[dict[str, Any]]:
    """The tables in a ``reproduce.json``."""
    if not path.exists():
        return []
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        found: list[dict[str, Any]] = whole["tables"]
        newer = whole["format"] > FORMAT
    except (ValueError, KeyError, TypeError) as error:
        raise HoldfastError(f"{path} is damaged: delete it; the runs beside it are kept") from error
    if newer:
        raise HoldfastError(f"{path} was made by a newer Holdfast")
    return found
