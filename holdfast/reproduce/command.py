"""``holdfast reproduce``, also ``python -m holdfast.reproduce``: torch, numpy and safetensors are all that it needs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.comparison.observers import LineLog, Observer
from holdfast.core.errors import HoldfastError
from holdfast.core.interrupts import stop_on_interrupt
from holdfast.core.os_errors import kept_on_os_errors
from holdfast.core.plain_parser import PlainParser, whole_number
from holdfast.core.shell_words import command_line
from holdfast.method.config import FIELDS
from holdfast.method.config_text import settings_from_pairs
from holdfast.reproduce.cells import Setup, TableSelection, cells, missing_data
from holdfast.reproduce.markdown import headline, lacking, section
from holdfast.reproduce.measure import Measure
from holdfast.reproduce.paper import PLAIN, SCALES, Choice, Paper, PaperTable
from holdfast.reproduce.paper_file import load_paper, shelf
from holdfast.reproduce.reading_tables import attribution_sections, readings_sections
from holdfast.reproduce.readings import reading_named
from holdfast.reproduce.reproduction import Reproduction, reproduce
from holdfast.reproduce.store import PAGE
from holdfast.reproduce.table_json import table_to_json
from holdfast.runs.file_imports import with_imports

PROGRAM = "holdfast reproduce"
CHOICE = "by name, part of a name, or numbers such as 1,4 or 2-5; repeatable; default: all"
REPEATED: dict[str, Any] = {"action": "append", "default": []}
FLAG: dict[str, Any] = {"action": "store_true"}
SWITCH: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
NUMBER: dict[str, Any] = {"type": whole_number, "default": 1, "metavar": "N"}
OPTIONS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("--table", {**REPEATED, "metavar": "ID"}, "a table or figure, or several as 1,2; repeatable; default: all"),
    ("--rows", {**REPEATED, "metavar": "ROW"}, f"rows {CHOICE}"),
    ("--columns", {**REPEATED, "metavar": "COLUMN"}, f"columns {CHOICE}"),
    ("--scale", {"default": "small"}, f"{', '.join(SCALES)} (the paper's own setting); default: small"),
    ("--reading", {"default": PLAIN, "metavar": "NAME"}, f"how to read what the paper leaves open; default: {PLAIN}"),
    ("--readings", FLAG, "run the baseline alone, under every reading: which one brings it to the printed level?"),
    (
        "--explain",
        {"default": "", "metavar": "NAME"},
        "run the baseline alone: what is each choice of a reading worth?",
    ),
    ("--seeds", NUMBER, "runs per cell, with seeds 0, 1, ...; default: 1"),
    ("--jobs", NUMBER, "runs at a time, each in its own process; default: 1"),
    ("--executor", {"default": "process"}, "where they run: process, ray, ray://host:port or slurm; default: process"),
    ("--out", {"metavar": "DIR"}, "folder of the runs; default: runs/reproduce-PAPER-SCALE"),
    ("--set", {**REPEATED, "metavar": "KEY=VALUE"}, "change a setting of every cell; repeatable"),
    ("--import", {**REPEATED, "metavar": "FILE", "dest": "imports"}, f"{FIELDS['imports'].metadata['doc']}"),
    ("--data-dir", {"metavar": "DIR"}, "folder of the data sets"),
    ("--device", {}, "auto, cpu, cuda, cuda:N or mps"),
    ("--collect", FLAG, "run nothing, and make the tables of what is in --out"),
    ("--light", FLAG, "delete the checkpoint of every finished run"),
    ("--together", SWITCH, "whether seeds, learning rates and numbers of parts share steps; default: on a GPU"),
    ("--note", {"default": "", "metavar": "TEXT"}, "a sentence to keep with the numbers, such as the data's origin"),
    ("--list", FLAG, "list the papers, or a paper's tables, rows, columns and settings, and run nothing"),
    ("--papers", {"metavar": "DIR"}, "folder of the papers' files; default: those of the library"),
    ("--json", FLAG, "print the tables as JSON"),
    ("--quiet", FLAG, "print no progress and no tables"),
)


def parser(program: str = PROGRAM) -> PlainParser:
    """Return the parser of the command line, for the command called ``program``."""
    made = PlainParser(
        program, "[PAPER]", description="Run a paper's tables, and compare our numbers with the published ones."
    )
    made.add_argument("paper", nargs="?", metavar="PAPER", help="the paper; see: holdfast reproduce --list")
    for name, kind, text in OPTIONS:
        made.add_argument(name, help=text, **kind)
    return made


def main(args: Sequence[str], program: str = PROGRAM) -> int:
    """Carry out the command, called ``program``; the exit code is 130 if it was stopped."""
    given = parser(program).parse_args(list(args))
    folder = Path(given.papers) if given.papers else None
    settings = user_settings(given)
    if given.list and given.paper is None:
        list_papers(folder)
        return 0
    if given.list:
        list_paper(load_paper(given.paper, folder), given, settings)
        return 0
    if given.paper is None:
        raise HoldfastError("reproduce needs a paper; see: holdfast reproduce --list")
    again = f"{program} {command_line(args)}"
    resume = f"stopped; resume with: {again}"
    with (
        kept_on_os_errors(again),
        stop_on_interrupt(say, "stopping after the current rounds", resume) as stop,
    ):
        result = reproduce(
            given.paper, given.table or "all", rows=given.rows, columns=given.columns, scale=given.scale,
            seeds=given.seeds, jobs=given.jobs, executor=given.executor, out=given.out, collect=given.collect,
            light=given.light, together=given.together, note=given.note, reading=given.reading,
            readings=given.readings, explain=given.explain,
            watch=Observer() if given.quiet or given.collect else LineLog(), stop=stop, folder=folder, **settings,
        )  # fmt: skip
    show(result, given)
    if not result.finished:
        say(resume)
    return 0 if result.finished else 130


def say(line: str) -> None:
    """Show a line that is no result."""
    print(line, file=sys.stderr)


def user_settings(given: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that the user changes."""
    settings = settings_from_pairs(given.set)
    named = {name: getattr(given, name) for name in ("data_dir", "device")}
    named["imports"] = ", ".join(given.imports) or None
    return with_imports(settings | {name: value for name, value in named.items() if value is not None})


def show(result: Reproduction, given: argparse.Namespace) -> None:
    """Print the tables as the user wants them."""
    if given.json:
        print(json.dumps([table_to_json(t) for t in result.tables]))
    elif not given.quiet:
        if given.readings or given.explain:
            print("\n".join((readings_sections if given.readings else attribution_sections)(result.tables)))
        else:
            print("\n".join(map(section, result.tables)))
        for line in dict.fromkeys(headline(t) for t in result.tables if not t.why_not):
            say(line)
        if given.table and result.unmatched:
            say(f"no such rows or columns in table {', '.join(result.unmatched)}")
        say(f"the tables are in {result.folder / PAGE}")


# -- --list --------------------
def list_papers(folder: Path | None) -> None:
    """Print a line for every paper."""
    for name in shelf(folder):
        print(f"{name:12} {load_paper(name, folder).title}")


def list_paper(paper: Paper, given: argparse.Namespace, settings: dict[str, Any]) -> None:
    """Print every table, row, column and setting, and at the end the data sets that were not found.

    Args:
        paper: The paper.
        given: The arguments of the command, for the tables and the scale.
        settings: Settings that the user changes.
    """
    print(f"{paper.title}\n\n{paper.notes.strip()}\n")
    print(f"setting: {pairs(paper.setting)}")
    for name, values in paper.scale.items():
        print(f"scale {name}: {pairs(values)}")
    for choice in paper.choice:
        print(f"choice {choice.name}: {choice.why}{source_of(choice)}; {changes(choice)}")
    for reading in paper.reading:
        print(f"reading {reading.name}: {', '.join(reading.choices)}" + (f"; {reading.why}" if reading.why else ""))
    setup = Setup(paper, given.scale, settings, reading_named(paper, given.reading))
    missing: list[str] = []
    for table in [paper.find(id) for id in given.table] or paper.table:
        chosen = cells(setup, TableSelection.whole(table))
        whys = [(c.row, missing_data(c.config)) for c in chosen if not c.absent]
        missing += [why for _, why in whys if why]
        list_table(table, {row for row, why in whys if why})
    if missing:
        print(f"\n{lacking(missing).capitalize()}; see: holdfast data list")


def list_table(table: PaperTable, without_data: set[int]) -> None:
    """Print the rows and columns of a table; ``without_data`` are the rows whose data was not found."""
    print(f"\ntable {table.id}: {table.caption}")
    if table.why_not:
        print(f"  cannot be run: {table.why_not}")
    if table.row:
        unit = f" [{table.unit}]" if table.unit else ""
        words = Measure.parse(table.measure, table.id).words
        print(f"  measure: {words}{unit}" + (f"; {pairs(table.set)}" if table.set else ""))
    for i, column in enumerate(table.columns, start=1):
        print(f"  column {i} {column.name}: {added(column.method, column.set)}")
    for i, row in enumerate(table.row):
        why = f"; absent: {row.absent}" if row.absent else "; data absent" if i in without_data else ""
        print(f"  row {i + 1} {row.name}: {added(row.method, row.set)}{why}")


def added(method: str, values: dict[str, Any]) -> str:
    """Return what a row or column adds to the method and the settings."""
    return "; ".join(text for text in (method, pairs(values)) if text) or "no change"


def source_of(choice: Choice) -> str:
    """Return the source of a choice in brackets."""
    return f" ({choice.source})" if choice.source else ""


def changes(choice: Choice) -> str:
    """Return what a choice changes."""
    terms = [f"{name}(..., {more})" for name, more in choice.add.items()]
    terms += [f"{new} for {name}" for name, new in choice.replace.items()]
    return ", ".join(filter(None, (pairs(choice.set), *terms, choice.measure and f"measure={choice.measure}")))


def pairs(values: dict[str, Any]) -> str:
    """Return settings as text."""
    return ", ".join(f"{k}={v}" for k, v in values.items())
