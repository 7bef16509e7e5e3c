"""``reproduce.json`` and ``reproduce.md`` of a folder: all tables that were made of its runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_atomically
from holdfast.reproduce.markdown import section
from holdfast.reproduce.run_names import run_name
from holdfast.reproduce.table_json import FORMAT, format_of, from_json, to_json
from holdfast.reproduce.table_schema import TableRecord
from holdfast.reproduce.verdict_table import verdict_sections
from holdfast.runs.folder import RunFolder
from holdfast.runs.run_files import CONFIG

RESULT, PAGE = "reproduce.json", "reproduce.md"
SHARED = (
    "Cells with equal settings share a run, so a cell that was not requested is also listed if the run of another cell "
    "provides its number.\n"
)


def keep(path: Path, tables: Sequence[TableRecord], remark: str) -> dict[str, str]:
    """Write these tables; those of other commands in the same folder stay.

    Args:
        path: The folder of the runs.
        tables: The tables to write.
        remark: The user's note on their numbers; without one a table keeps the note that it has.

    Returns:
        The note of each table, by the table's name.
    """
    before = {t.key: t for t in read(path / RESULT)}
    now = {t.key: replace(t, remark=remark or (before[t.key].remark if t.key in before else "")) for t in tables}
    write(path, list((before | now).values()))
    return {t.table: t.remark for t in now.values()}


def write(path: Path, tables: Sequence[TableRecord]) -> None:
    """Write both files of a folder."""
    write_atomically(path / RESULT, to_json(tables))
    first = [SHARED] if shared(tables) else []
    write_atomically(path / PAGE, "\n".join([*first, *verdict_sections(tables), *map(section, tables)]))


def shared(tables: Sequence[TableRecord]) -> bool:
    """Return whether one run provides several numbers."""
    folders = [runs.folder for t in tables for runs in t.runs]
    return len(set(folders)) < len(folders)


def read(path: Path) -> list[TableRecord]:
    """Read the tables of a ``reproduce.json``; there are none if the file is missing."""
    if not path.exists():
        return []
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        newer = format_of(whole) > FORMAT
        tables = [] if newer else from_json(whole)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HoldfastError(f"{path} is damaged: delete it; the runs beside it are kept") from error
    if newer:
        raise HoldfastError(f"{path} was written by a newer Holdfast: upgrade Holdfast to read it")
    return tables


def upgrade(path: Path) -> None:
    """Give the run folders of an earlier format the names that their runs have today.

    If it is cut off, the next command does the rest: ``reproduce.json`` gets today's format last.
    """
    tables = read(path / RESULT)
    if format_of(json.loads((path / RESULT).read_text(encoding="utf-8"))) == FORMAT:
        return
    for run in sorted(path.glob(f"*/seed-*/{CONFIG}")):
        name = run_name(RunFolder(run.parent).stored())
        if name != run.parent.parent.name:
            rename_run(run.parent, path / name / run.parent.name)
    write(path, tables)


def rename_run(old: Path, new: Path) -> None:
    """Move the run of one seed, and delete the folder that held it once that is empty."""
    new.parent.mkdir(exist_ok=True)
    if not new.exists():  # two old names may mean one run today: either will do
        old.rename(new)
    if not any(old.parent.iterdir()):
        old.parent.rmdir()
