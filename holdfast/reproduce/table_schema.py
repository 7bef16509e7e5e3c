"""The content of ``reproduce.json`` as typed records: tables, rows and cells. See ``table_json`` for the file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from holdfast.comparison.study_schema import Spread
from holdfast.data.loading import is_published
from holdfast.method.config import FIELDS
from holdfast.reproduce.paper import PLAIN, short_title
from holdfast.reproduce.readings import ALONE

RAN = ("run", "diverged")  # the statuses of a cell with a number of ours, or with the reason why there is none


@dataclass(frozen=True)
class CellRuns:
    """The runs of a cell and what they measured.

    Attributes:
        folder: The folder of the runs, below that of ``reproduce.json``.
        settings: The settings that differ from the defaults of a run.
        rounds: Rounds of every run.
        measure: What is measured, such as ``last5``.
        seeds: The seeds that were run.
        made: Device, date, versions and commit of every run, as far as known.
        seconds: Training time of all runs; None if one diverged.
        ours: What was measured; None if a run diverged.
        difference: Our mean minus the published number, where both exist; never at smoke scale.
        by_class: The mean accuracy of every class, for the measure ``by_class``.
        leaks_test_data: Whether a run used test data in training.
        exploded: The seeds whose training loss exploded.
    """

    folder: str
    settings: dict[str, Any]
    rounds: int
    measure: str
    seeds: list[int]
    made: list[dict[str, str]]
    seconds: float | None = None
    ours: Spread | None = None
    difference: float | None = None
    by_class: list[float] = field(default_factory=list)
    leaks_test_data: bool = False
    exploded: list[int] = field(default_factory=list)

    @property
    def on_published_data(self) -> bool:
        """Whether every run says what data it saw, and that is the published data set."""
        data = self.settings.get("data", FIELDS["data"].default)
        return bool(self.made) and all(is_published(data, made.get("data_checksum", "")) for made in self.made)


@dataclass(frozen=True)
class CellRecord:
    """One cell: the published number, and ours once it was run.

    Attributes:
        status: ``run``, ``diverged``, ``absent``, ``data absent`` or ``not run``.
        why: The reason, if the status needs one.
        method: The method as a sum.
        unit: The unit of all numbers of the cell.
        less_is_better: Whether lower numbers are better.
        published: The paper's number: None where it prints none, infinity for never.
        spread: The paper's standard deviation, None where it prints none.
        runs: What was run; None if nothing was.
    """

    status: str
    why: str
    method: str
    unit: str
    less_is_better: bool
    published: float | None
    spread: float | None
    runs: CellRuns | None = None

    @property
    def ran(self) -> bool:
        """Whether it was run, to the end or until it diverged."""
        return self.status in RAN

    @property
    def leaks(self) -> bool:
        """Whether one of its runs used test data in training."""
        return self.runs is not None and self.runs.leaks_test_data

    @property
    def exploded(self) -> bool:
        """Whether the training loss of one of its runs exploded."""
        return self.runs is not None and bool(self.runs.exploded)


@dataclass(frozen=True)
class RowRecord:
    """A row of a table: its name, our note on it, and a cell for every column."""

    name: str
    note: str
    cells: list[CellRecord]


@dataclass(frozen=True)
class ChoiceRecord:
    """A choice that a reading makes, why one may think so, and where that is written."""

    name: str
    why: str
    source: str


@dataclass(frozen=True)
class ReadingRecord:
    """How the paper was read: the reading's name, why one may read it so, and its choices in order."""

    name: str = PLAIN
    why: str = ""
    choices: list[ChoiceRecord] = field(default_factory=list)

    @property
    def alone(self) -> bool:
        """Whether it is one choice of another reading by itself, to see what that is worth."""
        return self.name.startswith(ALONE)

    @property
    def assumptions(self) -> str:
        """The choices in words, for a headline."""
        made = "; ".join(c.name for c in self.choices)
        return f"reading “{self.name}”" + (f": {made}" if made and not self.alone else "")


@dataclass(frozen=True)
class TableRecord:
    """A table, or the requested rows and columns of it, with everything that was measured for it.

    Attributes:
        paper: The name of the paper's file.
        title: The paper's title.
        table: The number or name of the table in the paper.
        caption: What the table shows.
        claim: What the paper claims with it.
        note: Our remark.
        why_not: Why the table cannot be run; empty if it can.
        scale: ``smoke``, ``small`` or ``full``.
        reading: How the paper was read.
        changed: Settings that the user changed for all cells.
        reproduction: Whether the settings are the paper's own.
        measure: What is measured, unless a row or column says otherwise.
        unit: Its unit.
        expect: The tests of the claim, such as ``A > B``.
        needs: How many of the tests the claim needs: ``all``, ``most`` or ``all but N``.
        baseline: The columns whose printed level a reading has to reach.
        level_of: The table whose baseline decides instead.
        same_runs_as: The table whose runs this one shows again.
        variants: Our variants: column -> the published column that it varies.
        controls: Our controls: column -> what it controls for.
        columns: The names of the columns.
        rows: The rows.
        not_asked: How many cells of the table were not requested.
        remark: The user's note on these numbers.
    """

    paper: str
    title: str
    table: str
    caption: str
    claim: str
    note: str
    why_not: str
    scale: str
    reading: ReadingRecord
    changed: dict[str, Any]
    reproduction: bool
    measure: str
    unit: str
    expect: list[str]
    needs: str
    baseline: list[str]
    level_of: str
    same_runs_as: str
    variants: dict[str, str]
    controls: dict[str, str]
    columns: list[str]
    rows: list[RowRecord]
    not_asked: int
    remark: str = ""

    @property
    def name(self) -> str:
        """The paper's name, for people."""
        return short_title(self.title)

    @property
    def cells(self) -> list[CellRecord]:
        """All cells, row by row."""
        return [cell for row in self.rows for cell in row.cells]

    @property
    def runs(self) -> list[CellRuns]:
        """What was run for the cells."""
        return [cell.runs for cell in self.cells if cell.runs is not None]

    @property
    def key(self) -> tuple[str, ...]:
        """What makes it this table and no other: paper, table, scale, changed settings and reading."""
        return self.paper, self.table, *self.circumstances, self.reading.name

    @property
    def circumstances(self) -> tuple[str, str]:
        """What tables must have in common to be compared: the scale and the changed settings."""
        return self.scale, json.dumps(self.changed, sort_keys=True)

    def column(self, row: RowRecord, name: str) -> CellRecord:
        """Return the cell of a row in the column with this name."""
        return row.cells[self.columns.index(name)]

    @property
    def varied(self) -> bool:
        """Whether the user changed more than the precision."""
        return bool(self.changed.keys() - {"precision"})
