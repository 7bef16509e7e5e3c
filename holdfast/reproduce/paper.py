"""A paper: its tables and data figures as settings. See ``paper_file`` for the files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.reproduce.selection import see

SCALES = ("smoke", "small", "full")  # full is the paper's own setting
PLAIN = "plain"  # the reading that makes no choice beyond the settings in the file


def short_title(title: str) -> str:
    """Return a paper's name: its title up to the colon.

    >>> short_title("Toy: a paper for tests (2026)")
    'Toy'
    """
    return title.partition(":")[0]


@dataclass(frozen=True)
class Choice:
    """One thing that a paper leaves open, decided in one way.

    Attributes:
        name: What is chosen.
        why: Why one may think so.
        source: Where that is written.
        tables: The tables that it concerns; empty for all.
        rows: Names of rows, or whole words of their names; empty for all.
        data: The data set that it concerns, by name; empty for all.
        set: Settings that it sets.
        add: Arguments that it adds, by the term they belong to, wherever that occurs: ``cifar10 = "normalise=off"``.
        replace: Terms that it puts in the place of others, by name: ``sam = "sam(0.01)"``.
        measure: What it measures instead.
    """

    name: str
    why: str
    source: str = ""
    tables: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    data: str = ""
    set: dict[str, Any] = field(default_factory=dict)
    add: dict[str, str] = field(default_factory=dict)
    replace: dict[str, str] = field(default_factory=dict)
    measure: str = ""


@dataclass(frozen=True)
class Reading:
    """A way to read a paper: the names of the choices that are made together, and why."""

    name: str
    choices: tuple[str, ...]
    why: str = ""


@dataclass(frozen=True)
class PaperColumn:
    """A column, which adds a method or settings to every row.

    Attributes:
        name: Its name in the paper.
        method: Parts that it adds to the sum.
        set: Settings that it adds.
        measure: What it measures, if not what the table does.
        unit: The unit of that.
        variant_of: The published column that this one is our variant of.
        control: What this column controls for; a control is no part of the paper, and nobody's rival.
        rows: The rows that it is for, by name or whole words of it; empty for all.
    """

    name: str
    method: str = ""
    set: dict[str, Any] = field(default_factory=dict)
    measure: str = ""
    unit: str = ""
    variant_of: str = ""
    control: str = ""
    rows: tuple[str, ...] = ()


@dataclass(frozen=True)
class PaperRow:
    """A row, with the numbers that the paper prints.

    Attributes:
        name: Its name in the paper.
        published: A number per column before the controls: NaN where the paper prints none, infinity for never.
        spread: Standard deviations per column, NaN where the paper prints none; empty if it prints none at all.
        method: Parts that it adds to the sum.
        set: Settings that it adds.
        absent: Why it cannot be run; empty if it can.
        note: Our remark.
        measure: What it measures, if not what the table does.
        unit: The unit of that.
    """

    name: str
    published: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()
    method: str = ""
    set: dict[str, Any] = field(default_factory=dict)
    absent: str = ""
    note: str = ""
    measure: str = ""
    unit: str = ""


@dataclass(frozen=True)
class PaperTable:
    """A table or a figure that shows data.

    Attributes:
        id: Its number or name in the paper.
        caption: What it shows.
        claim: What the paper claims with it.
        measure: What is measured.
        unit: The unit of the published numbers.
        method: Parts of the sum that all cells share.
        set: Settings that all cells share.
        absent: Why nothing of it can be run.
        theory: The paper of ``holdfast theory`` that computes it instead.
        expect: The tests of the claim, such as ``A > B``; see ``claims``.
        needs: How many of the tests the claim needs: ``all``, ``most`` or ``all but N``.
        baseline: The column whose printed level a reading has to reach, or several; none that the claim tests.
        level_of: The table whose baseline decides instead, where this one has none with a printed accuracy.
        same_runs_as: The table whose runs this one shows again; the claim is then counted there.
        note: Our remark.
        columns: The columns.
        row: The rows.
    """

    id: str
    caption: str
    claim: str = ""
    measure: str = "final"
    unit: str = "%"
    method: str = ""
    set: dict[str, Any] = field(default_factory=dict)
    absent: str = ""
    theory: str = ""
    expect: tuple[str, ...] = ()
    needs: str = "all"
    baseline: str | tuple[str, ...] = ()
    level_of: str = ""
    same_runs_as: str = ""
    note: str = ""
    columns: tuple[PaperColumn, ...] = ()
    row: tuple[PaperRow, ...] = ()

    @property
    def baselines(self) -> tuple[str, ...]:
        """The columns whose printed level a reading has to reach."""
        return (self.baseline,) if isinstance(self.baseline, str) else self.baseline

    @property
    def why_not(self) -> str:
        """Why nothing of it can be run; empty if it can."""
        return self.absent or (f"analytical: computed by `holdfast theory {self.theory}`" if self.theory else "")


@dataclass(frozen=True)
class Paper:
    """A paper: its tables, and the settings that they share.

    Attributes:
        name: The name of its file.
        title: Its title.
        notes: What we decided where the paper leaves something open.
        setting: The settings of all tables.
        scale: Settings that a smaller scale overrides, by its name.
        table: The tables.
        choice: What the paper leaves open, each decided in one way.
        reading: Ways to read the paper, beside the file's own settings.
        believed: What we believe its printed numbers come from, and why: a paragraph for the page of results.
    """

    name: str
    title: str
    notes: str
    setting: dict[str, Any]
    scale: dict[str, dict[str, Any]]
    table: tuple[PaperTable, ...]
    choice: tuple[Choice, ...] = ()
    reading: tuple[Reading, ...] = ()
    believed: str = ""

    def find(self, id: str) -> PaperTable:
        """Return the table with this number or name."""
        for table in self.table:
            if table.id.lower() == id.lower():
                return table
        known = ", ".join(table.id for table in self.table)
        raise HoldfastError(f"{self.name} has no table {id!r}; known: {known}; {see(self.name)}")
