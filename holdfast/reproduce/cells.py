"""The cells of a table: row × column, each with the method and the settings that its layers add up to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.comparison.planned_run import PlannedRun
from holdfast.core.errors import HoldfastError
from holdfast.core.user_files import file_reference
from holdfast.data.sources import data_folder, source
from holdfast.method.config import FIELDS, Config, with_role
from holdfast.method.method import Method
from holdfast.reproduce.measure import Measure
from holdfast.reproduce.paper import Paper, PaperTable, Reading
from holdfast.reproduce.readings import applied, choices_of, data_name, merged, whole_words
from holdfast.reproduce.run_names import run_name, settings_of_run

CHECKPOINTS = 10  # per run: writing a large model after every round would take longer than the round


@dataclass(frozen=True)
class TableSelection:
    """Some rows and columns of a table, by their indices."""

    table: PaperTable
    rows: Sequence[int]
    columns: Sequence[int]

    @classmethod
    def whole(cls, table: PaperTable) -> TableSelection:
        """Select all rows and columns."""
        return cls(table, range(len(table.row)), range(len(table.columns)))


@dataclass(frozen=True)
class Cell:
    """One number of a table: what to run for it, and what the paper prints.

    Attributes:
        row: Index of the row in the table.
        column: Index of the column.
        label: Both names, for people.
        config: The settings of its runs.
        method: The method that they train with.
        measure: What is measured.
        unit: The unit of the published number.
        published: The published number: NaN where there is none, infinity for never.
        spread: Its published standard deviation, NaN where there is none.
        absent: Why it cannot be run; empty if it can.
    """

    row: int
    column: int
    label: str
    config: Config
    method: Method
    measure: Measure
    unit: str
    published: float
    spread: float
    absent: str

    @property
    def folder(self) -> str:
        """The name of its run folder; equal cells of several tables share it."""
        return run_name(self.config)

    def task(self, out: Path, seed: int) -> PlannedRun:
        """Return the run of one seed, with its folder below ``out``."""
        config = self.config.changed(seed=seed)
        return PlannedRun(self.row, self.row, self.label, config, self.method, out / self.folder / f"seed-{seed}")

    def settings(self) -> dict[str, Any]:
        """Return the settings beside the method that differ from the defaults of a run."""
        return {name: value for name, value in settings_of_run(self.config).items() if name != "method"}


@dataclass(frozen=True)
class Setup:
    """What all cells of a request have in common.

    Attributes:
        paper: The paper that the tables are from.
        scale: ``smoke``, ``small`` or ``full``.
        changed: The user's settings, which override all others; the data set only in rows of that data set.
        reading: How the paper is read.
    """

    paper: Paper
    scale: str
    changed: Mapping[str, Any]
    reading: Reading


def cells(setup: Setup, selection: TableSelection) -> list[Cell]:
    """Return the selected cells of a table, row by row."""
    return [cell(setup, selection.table, i, j) for i in selection.rows for j in selection.columns]


def cell(setup: Setup, table: PaperTable, i: int, j: int) -> Cell:
    """Return one cell of a table.

    Args:
        setup: The paper, its reading, the scale and the user's settings.
        table: The table.
        i: The index of the row.
        j: The index of the column.

    Returns:
        The cell.
    """
    paper, row, column = setup.paper, table.row[i], table.columns[j]
    label = f"{row.name} / {column.name}"
    where = f"{paper.name}, table {table.id}, {label}"
    elsewhere = column.rows and not any(whole_words(text, row.name) for text in column.rows)
    absent = table.why_not or row.absent or (f"{column.name} is for other rows" if elsewhere else "")
    text = "+".join(m for m in (table.method, row.method, column.method) if m) or "fedavg"
    try:
        values = merged((paper.setting, table.set, row.set, column.set))
        values, text, measure = applied(choices_of(paper, setup.reading), table, row, values, text)
        values = merged((values, paper.scale.get(setup.scale, {})))
        values = merged((values, by_hand(setup.changed, values)))
        values.setdefault("checkpoint_every", max(1, Config().changed(**values).rounds // CHECKPOINTS))
        config = Config().changed(**values, method=text)
        method = Method() if absent else Method.parse(text)
    except HoldfastError as error:
        raise HoldfastError(f"{where}: {error}") from error
    published, spread = (numbers[j] if j < len(numbers) else math.nan for numbers in (row.published, row.spread))
    return Cell(
        i, j, label, config, method,
        Measure.parse(measure or column.measure or row.measure or table.measure, where),
        column.unit or row.unit or table.unit, published, spread, absent,
    )  # fmt: skip


def by_hand(changed: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's settings for a row: a data set given by hand is for rows of that data set alone."""
    own = values.get("data", FIELDS["data"].default)
    other = "data" in changed and data_name(changed["data"]) != data_name(own)
    return {k: v for k, v in changed.items() if not (other and k == "data")}


def missing_data(config: Config) -> str:
    """Return why the data set cannot be read, starting with its name; an empty text if it can."""
    if file_reference(config.data, "data set"):
        return ""
    data = source(config.data)
    return f"{data.name} was not found" if data.missing(data_folder(config.data_dir)) else ""


def tasks(requested: Sequence[Cell], out: Path, seeds: Sequence[int]) -> list[PlannedRun]:
    """Return the runs of some cells, each once; runs on the same federation follow each other.

    Args:
        requested: The cells.
        out: The folder of the runs.
        seeds: The seeds of every cell.

    Returns:
        The runs.
    """
    every = [cell.task(out, seed) for seed in seeds for cell in requested]
    unique = {task.folder: task for task in every}
    return sorted(
        unique.values(), key=lambda task: [str(getattr(task.config, name)) for name in with_role("federation")]
    )
