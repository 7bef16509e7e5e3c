"""The cells of a table: row × column, with the method and the settings that their layers add up to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from holdfast.comparison.labels import slug
from holdfast.comparison.task import DEALT, FREE, Task
from holdfast.core.errors import HoldfastError
from holdfast.data.sources import data_folder, source
from holdfast.method.config import Config
from holdfast.method.method import Method
from holdfast.reproduce.measure import Measure
from holdfast.reproduce.paper import Paper, PaperTable

RIVALS = (("cohort", "participation"), ("epochs", "steps"))  # a later layer's choice replaces the other of the pair
CHECKPOINTS = 10  # of a run: a large model written after every round would take longer than the round
PLACE = ("device", "engine", "slice", "graphs", "convolution", *FREE)  # where and how, not what


@dataclass(frozen=True)
class TableSelection:
    """Rows × columns of a table, by their numbers from 0 on."""

    table: PaperTable
    rows: Sequence[int]
    columns: Sequence[int]

    @classmethod
    def whole(cls, table: PaperTable) -> TableSelection:
        return cls(table, range(len(table.row)), range(len(table.columns)))


@dataclass(frozen=True)
class Cell:
    """One number of a table: what to run for it, and what the paper prints."""

    row: int
    column: int
    label: str
    config: Config
    method: Method
    measure: Measure
    unit: str
    published: float
    spread: float
    absent: str  # why it cannot be run

    @property
    def folder(self) -> str:
        """Named by what is run, wherever that is, so that equal cells of several tables share their runs."""
        facts = {f.name: getattr(self.config, f.name) for f in fields(Config) if f.name not in ("seed", *PLACE)}
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:10]
        return f"{slug(f'{self.config.method} {self.config.data}')[:50]}-{digest}"

    def task(self, out: Path, seed: int) -> Task:
        config = self.config.changed(seed=seed)
        return Task(self.row, self.row, self.label, config, self.method, out / self.folder / f"seed-{seed}")

    def settings(self) -> dict[str, Any]:
        """What differs from the defaults of a run."""
        return {
            f.name: getattr(self.config, f.name)
            for f in fields(Config)
            if f.name not in ("method", "seed", *PLACE) and getattr(self.config, f.name) != f.default
        }


def cells(paper: Paper, part: TableSelection, scale: str, changed: Mapping[str, Any]) -> list[Cell]:
    """Every cell of a table's part at a scale; ``changed`` are the user's own settings, on top of all."""
    return [cell(paper, part.table, i, j, scale, changed) for i in part.rows for j in part.columns]


def cell(paper: Paper, table: PaperTable, i: int, j: int, scale: str, changed: Mapping[str, Any]) -> Cell:
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
    """Later layers override earlier ones, also where they choose the other one of two rivals."""
    values: dict[str, Any] = {}
    for layer in layers:
        for pair in RIVALS:
            if any(layer.get(name) is not None for name in pair):
                values = {k: v for k, v in values.items() if k not in pair}
        values |= layer
    return values


def missing_data(config: Config) -> str:
    """Why the data set cannot be read here, beginning with its name; empty when it can."""
    wanted = source(config.data)
    return f"{wanted.name} is not here" if wanted.missing(data_folder(config.data_dir)) else ""


def tasks(chosen: Sequence[Cell], out: Path, seeds: Sequence[int]) -> list[Task]:
    """The runs behind some cells, each once; those of one federation stand together."""
    found = {cell.task(out, seed).folder: cell.task(out, seed) for seed in seeds for cell in chosen}
    return sorted(found.values(), key=lambda task: [str(getattr(task.config, name)) for name in DEALT])
