"""A paper: its tables and data figures as settings. See ``paper_file`` for the files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.reproduce.selection import see

SCALES = ("smoke", "small", "full")  # full is the paper's own setting


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
    """

    name: str
    method: str = ""
    set: dict[str, Any] = field(default_factory=dict)
    measure: str = ""
    unit: str = ""
    variant_of: str = ""


@dataclass(frozen=True)
class PaperRow:
    """A row, with the numbers that the paper prints.

    Attributes:
        name: Its name in the paper.
        published: A number per column: NaN where the paper prints none, infinity for never.
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
    note: str = ""
    columns: tuple[PaperColumn, ...] = ()
    row: tuple[PaperRow, ...] = ()

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
    """

    name: str
    title: str
    notes: str
    setting: dict[str, Any]
    scale: dict[str, dict[str, Any]]
    table: tuple[PaperTable, ...]

    def find(self, id: str) -> PaperTable:
        """Return the table with this number or name."""
        for table in self.table:
            if table.id.lower() == id.lower():
                return table
        known = ", ".join(table.id for table in self.table)
        raise HoldfastError(f"{self.name} has no table {id!r}; known: {known}; {see(self.name)}")
