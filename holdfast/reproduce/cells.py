"""The cells of a table: row × column, each with the method and the settings that its layers add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.comparison.planned_run import PlannedRun
from holdfast.core.errors import HoldfastError
from holdfast.core.user_files import file_reference
from holdfast.data.sources import data_folder, source
from holdfast.method.config import RIVALS, Config, with_role
from holdfast.method.method import Method
from holdfast.reproduce.measure import Measure
from holdfast.reproduce.paper import Paper, PaperTable
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


def cells(paper: Paper, selection: TableSelection, scale: str, changed: Mapping[str, Any]) -> list[Cell]:
    """Return the selected cells of a table.

    Args:
        paper: The paper that the table is from.
        selection: The rows and columns.
        scale: ``smoke``, ``small`` or ``full``.
        changed: The user's settings, which override all others.

    Returns:
        The cells, row by row.
    """
    return [cell(paper, selection.table, (i, j), scale, changed) for i in selection.rows for j in selection.columns]


def cell(paper: Paper, table: PaperTable, at: tuple[int, int], scale: str, changed: Mapping[str, Any]) -> Cell:
    """Return one cell of a table, by the indices of its row and column; the other arguments are those of ``cells``."""
    i, j = at
    row, column = table.row[i], table.columns[j]
    label = f"{row.name} / {column.name}"
    where = f"{paper.name}, table {table.id}, {label}"
    layers = (paper.setting, table.set, row.set, column.set, paper.scale.get(scale, {}), changed)
    text = "+".join(m for m in (table.method, row.method, column.method) if m) or "fedavg"
    absent = table.why_not or row.absent
    try:
        config = Config().changed(**merged(layers), method=text)
        if not any("checkpoint_every" in layer for layer in layers):
            config = config.changed(checkpoint_every=max(1, config.rounds // CHECKPOINTS))
        method = Method() if absent else Method.parse(text)
    except HoldfastError as error:
        raise HoldfastError(f"{where}: {error}") from error
    return Cell(
        i, j, label, config, method,
        Measure.parse(column.measure or row.measure or table.measure, where),
        column.unit or row.unit or table.unit,
        row.published[j], row.spread[j] if row.spread else float("nan"), absent,
    )  # fmt: skip


def merged(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge layers of settings: later ones override earlier ones, also by choosing the other setting of a pair."""
    values: dict[str, Any] = {}
    for layer in layers:
        for pair in RIVALS:
            if any(layer.get(name) is not None for name in pair):
                values = {k: v for k, v in values.items() if k not in pair}
        values |= layer
    return values


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
