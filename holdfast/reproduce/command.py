"""``holdfast reproduce``, also ``python -m holdfast.reproduce``: it needs nothing but torch and numpy."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from holdfast.comparison.observers import LineLog, Observer
from holdfast.core.errors import HoldfastError
from holdfast.method.config_text import setting_from_text
from holdfast.reproduce.cells import TableSelection, cells, missing_data
from holdfast.reproduce.markdown import headline, section, wanting
from holdfast.reproduce.measure import Measure
from holdfast.reproduce.paper import SCALES, Paper, load_paper, shelf
from holdfast.reproduce.reproduction import reproduce
from holdfast.reproduce.store import PAGE

CHOICE = "name, part of one, or numbers such as 1,4 or 2-5"
OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "--table",
        {"action": "append", "metavar": "ID", "help": "a table or figure, or several as 1,2; repeatable; default: all"},
    ),
    ("--rows", {"action": "append", "default": [], "metavar": "ROW", "help": f"{CHOICE}; repeatable"}),
    ("--columns", {"action": "append", "default": [], "metavar": "COLUMN", "help": f"{CHOICE}; repeatable"}),
    ("--scale", {"default": "small", "help": f"{', '.join(SCALES)} (the paper's own setting); default: small"}),
    ("--seeds", {"type": int, "default": 1, "metavar": "N", "help": "runs of every cell, seeds 0, 1, ...; default: 1"}),
    (
        "--jobs",
        {"type": int, "default": 1, "metavar": "N", "help": "runs at a time, each in a process of its own; default: 1"},
    ),
    ("--out", {"metavar": "DIR", "help": "folder of the runs; default: runs/reproduce-PAPER-SCALE"}),
    ("--set", {"action": "append", "default": [], "metavar": "KEY=VALUE", "help": "change a setting of every cell"}),
    ("--data-dir", {"metavar": "DIR", "help": "folder of the data sets"}),
    ("--device", {"help": "auto, cpu or cuda"}),
    ("--collect", {"action": "store_true", "help": "run nothing: make the tables of what is in --out"}),
    ("--light", {"action": "store_true", "help": "delete the checkpoint of every run that is finished"}),
    (
        "--note",
        {
            "default": "",
            "metavar": "TEXT",
            "help": "a sentence to keep with the numbers, such as where the data is from",
        },
    ),
    ("--list", {"action": "store_true", "help": "name every table, row, column and setting, and run nothing"}),
    ("--papers", {"metavar": "DIR", "help": "folder of the papers' files; default: those of the library"}),
    ("--json", {"action": "store_true", "help": "print the tables as JSON"}),
    ("--quiet", {"action": "store_true", "help": "no progress and no tables"}),
)


PROGRAM = "holdfast reproduce"


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise HoldfastError(message)


def parser(program: str = PROGRAM) -> Parser:
    made = Parser(program, description="Run a paper's tables, and put ours beside the published numbers.")
    made.add_argument("paper", nargs="?", help="see: holdfast reproduce --list")
    for name, how in OPTIONS:
        made.add_argument(name, **how)
    return made


def main(args: Sequence[str], program: str = PROGRAM) -> int:
    """Carry out the command, called by the name ``program``; the exit code is 130 when it was stopped."""
    given = parser(program).parse_args(list(args))
    folder = Path(given.papers) if given.papers else None
    if given.paper is None:
        if not given.list:
            raise HoldfastError("reproduce needs a paper; holdfast reproduce --list names them")
        for name in shelf(folder):
            print(f"{name:10} {load_paper(name, folder).title}")
        return 0
    settings = changes(given)
    if given.list:
        list_paper(load_paper(given.paper, folder), given.table, given.scale, settings)
        return 0
    again = f"stopped; go on with: {program} {shlex.join(args)}"
    with stoppable(again) as stopping:
        found = reproduce(
            given.paper, given.table or "all", rows=given.rows, columns=given.columns, scale=given.scale,
            seeds=given.seeds, jobs=given.jobs, out=given.out, collect=given.collect, light=given.light,
            note=given.note, watch=Observer() if given.quiet or given.collect else LineLog(),
            stop=lambda: bool(stopping), folder=folder, **settings,
        )  # fmt: skip
    if given.json:
        print(json.dumps(found.tables))
    elif not given.quiet:
        print("\n".join(map(section, found.tables)))
        for said in dict.fromkeys(headline(t) for t in found.tables if not t["why_not"]):
            print(said, file=sys.stderr)
        if given.table and found.without:
            print(f"no such rows or columns in table {', '.join(found.without)}", file=sys.stderr)
        print(f"the tables are in {found.folder / PAGE}", file=sys.stderr)
    if not found.finished:
        print(again, file=sys.stderr)
    return 0 if found.finished else 130


def changes(given: argparse.Namespace) -> dict[str, Any]:
    """The settings that the user changes."""
    settings: dict[str, Any] = {}
    for pair in given.set:
        name, equals, text = pair.partition("=")
        if not equals:
            raise HoldfastError(f"--set {pair}: expected key=value")
        name = name.strip().replace("-", "_")
        settings[name] = setting_from_text(name, text.strip())
    for name in ("data_dir", "device"):
        if getattr(given, name) is not None:
            settings[name] = getattr(given, name)
    return settings


def list_paper(paper: Paper, ids: Sequence[str] | None, scale: str, settings: dict[str, Any]) -> None:
    """Every table, row, column and setting, in plain text; at the end the data sets that are not here."""
    lacking: list[str] = []
    print(f"{paper.title}\n\n{paper.notes.strip()}\n")
    print(f"setting: {pairs(paper.setting)}")
    for name, values in paper.scale.items():
        print(f"scale {name}: {pairs(values)}")
    for table in paper.table if not ids else [paper.find(id) for id in ids]:
        print(f"\ntable {table.id}: {table.caption}")
        if table.why_not:
            print(f"  cannot be run: {table.why_not}")
        if table.row:
            unit = f" [{table.unit}]" if table.unit else ""
            said = Measure.parse(table.measure, table.id).words
            print(f"  measure: {said}{unit}" + (f"; {pairs(table.set)}" if table.set else ""))
        for i, column in enumerate(table.columns, start=1):
            print(f"  column {i} {column.name}: {added(column.method, column.set)}")
        every = [
            (c.row, missing_data(c.config))
            for c in cells(paper, TableSelection.whole(table), scale, settings)
            if not c.absent
        ]
        lacking += [why for _, why in every if why]
        missing = {i for i, why in every if why}
        for i, row in enumerate(table.row):
            why = f"; absent: {row.absent}" if row.absent else "; data absent" if i in missing else ""
            print(f"  row {i + 1} {row.name}: {added(row.method, row.set)}{why}")
    if lacking:
        print(f"\nThe {wanting(lacking, 'here')}; see: holdfast data list")


def added(method: str, values: dict[str, Any]) -> str:
    return "; ".join(text for text in (method, pairs(values)) if text) or "as it is"


def pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in values.items())


@contextmanager
def stoppable(again: str) -> Iterator[list[bool]]:
    """The first Ctrl-C only asks to stop (the list becomes non-empty); the second one says ``again`` and interrupts."""
    asked: list[bool] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if asked:
            print(again, file=sys.stderr)
            raise KeyboardInterrupt
        asked.append(True)
        print("stopping after the rounds that are being played (Ctrl-C again: at once)", file=sys.stderr)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
