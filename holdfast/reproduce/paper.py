"""A paper's tables and data figures as settings, read from ``holdfast/papers/<paper>.toml``."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from holdfast.core.errors import HoldfastError, unknown
from holdfast.reproduce.claims import FORM, NEEDS, Expectation, reaches
from holdfast.reproduce.measure import Measure
from holdfast.reproduce.selection import see

T = TypeVar("T", "Paper", "PaperTable", "PaperRow", "PaperColumn")

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


def shelf(folder: Path | None = None) -> dict[str, Traversable]:
    """Return the papers' files by name: those that come with the library, or those in a folder."""
    root: Traversable = folder if folder is not None else files("holdfast") / "papers"
    found = [file for file in root.iterdir() if file.name.endswith(".toml")] if root.is_dir() else []
    return {file.name.removesuffix(".toml"): file for file in sorted(found, key=lambda file: file.name)}


def load_paper(name: str, folder: Path | None = None) -> Paper:
    """Read and check a paper's file."""
    known = shelf(folder)
    if name not in known:
        raise unknown("paper", name, known)
    try:
        raw = tomllib.loads(known[name].read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HoldfastError(f"{known[name]} is not valid TOML: {error}") from error
    where = f"{name}.toml"
    tables = []
    for number, each in enumerate(listed(where, raw, "table"), start=1):
        at = f"{where}, table {each.get('id', number)}"
        columns = tuple(made(PaperColumn, f"{at}, a column", c) for c in listed(at, each, "columns"))
        rows = tuple(made(PaperRow, f"{at}, a row", r) for r in listed(at, each, "row"))
        tables.append(made(PaperTable, at, each | {"columns": columns, "row": rows}))
        check_table(at, tables[-1])
    once(where, "table", [table.id for table in tables])
    scales = raw.get("scale", {})
    for scale in scales:
        if scale not in SCALES[:-1]:
            raise unknown("scale", scale, SCALES[:-1], f"in {where}")
    raw = {"notes": "", "setting": {}} | raw | {"scale": scales, "table": tuple(tables), "name": name}
    return made(Paper, where, raw)


def listed(where: str, raw: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return a list of TOML tables, empty if the key is missing."""
    found = raw.get(key, [])
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise HoldfastError(f"{where}: {key} must be a list of tables")
    return found


def made(cls: type[T], where: str, raw: Mapping[str, Any]) -> T:
    """Make a dataclass from a TOML table; lists become tuples, and every key must be known."""
    kinds = [f.name for f in fields(cls)]
    for key in raw:
        if key not in kinds:
            raise unknown("key", key, kinds, f"in {where}")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
    for f in fields(cls):
        if f.name not in raw and f.default is MISSING and f.default_factory is MISSING:
            raise HoldfastError(f"{where}: the key {f.name!r} is missing; add it")
    return cls(**values)


def check_table(where: str, table: PaperTable) -> None:
    """Check the rows, columns and numbers of a table."""
    once(where, "column", [c.name for c in table.columns])
    once(where, "row", [r.name for r in table.row])
    if not table.why_not and not (table.columns and table.row):
        raise HoldfastError(f"{where}: needs columns and rows, or a key absent or theory that says why it has none")
    for measure in (table.measure, *(c.measure for c in table.columns), *(r.measure for r in table.row)):
        if measure:
            Measure.parse(measure, where)
    for row in table.row:
        at = f"{where}, row {row.name!r}"
        numbers = (*row.published, *row.spread)
        if not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in numbers):
            raise HoldfastError(f"{at}: published and spread must be numbers; write nan where the paper prints none")
        for key, given in (("published", row.published), ("spread", row.spread)):
            if len(given) != len(table.columns) and (given or key == "published"):
                raise HoldfastError(
                    f"{at}: {key} must have one number for each of the {len(table.columns)} columns, not {len(given)}"
                )
        if any(math.isnan(v) is False and v < 0 for v in row.spread):
            raise HoldfastError(f"{at}: spread must be at least 0; write nan where the paper prints none")
    check_claim(where, table)


def check_claim(where: str, table: PaperTable) -> None:
    """Check the tests of a table's claim."""
    columns, rows = [c.name for c in table.columns], [r.name for r in table.row]
    both = {*columns} & {*rows}
    if both:
        raise HoldfastError(f"{where}: {both.pop()!r} is both a row and a column; rename one of them")
    for text in table.expect:
        if not reaches([text], columns, rows):
            raise HoldfastError(f"{where}: expect {text!r} must be {FORM}")
    if not NEEDS.fullmatch(table.needs):
        raise HoldfastError(f"{where}: needs must be all, most or 'all but N', not {table.needs!r}")
    variants = {c.name: c.variant_of for c in table.columns if c.variant_of}
    for name, of in variants.items():
        if of not in columns or of in variants:
            raise HoldfastError(f"{where}, column {name!r}: variant_of must name a published column, not {of!r}")
    once(where, "variant of", list(variants.values()))
    if variants and any(Expectation.parse(text).left in rows for text in table.expect):
        raise HoldfastError(f"{where}: expect must name columns, not rows, where a column has variant_of")


def once(where: str, kind: str, names: list[str]) -> None:
    """Check that no name appears twice."""
    for name in names:
        if names.count(name) > 1:
            raise HoldfastError(f"{where}: the {kind} {name!r} appears twice; rename one of them")
