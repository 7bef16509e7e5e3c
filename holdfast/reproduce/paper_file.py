"""Read and check ``holdfast/papers/<paper>.toml``."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from holdfast.core.errors import HoldfastError, unknown
from holdfast.method.config import FIELDS
from holdfast.reproduce.expectations import FORM, NEEDS, Expectation, reaches
from holdfast.reproduce.measure import Measure
from holdfast.reproduce.paper import PLAIN, SCALES, Choice, Paper, PaperColumn, PaperRow, PaperTable, Reading

T = TypeVar("T", Paper, PaperTable, PaperRow, PaperColumn, Choice, Reading)


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
    raw = (
        {"notes": "", "setting": {}}
        | raw
        | {
            "scale": scales,
            "table": tuple(tables),
            "name": name,
            "choice": tuple(made(Choice, f"{where}, a choice", c) for c in listed(where, raw, "choice")),
            "reading": tuple(made(Reading, f"{where}, a reading", r) for r in listed(where, raw, "reading")),
        }
    )
    paper = made(Paper, where, raw)
    check_readings(where, paper)
    return paper


def listed(where: str, raw: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return a list of TOML tables, empty if the key is missing.

    Args:
        where: The place that an error names.
        raw: The TOML table that has the key.
        key: The key.

    Returns:
        The list.
    """
    found = raw.get(key, [])
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise HoldfastError(f"{where}: {key} must be a list of tables")
    return found


def made(cls: type[T], where: str, raw: Mapping[str, Any]) -> T:
    """Make a dataclass from a TOML table; lists become tuples, and every key must be known.

    Args:
        cls: The dataclass.
        where: The place that an error names.
        raw: The TOML table.

    Returns:
        The object.
    """
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
    controls = [bool(c.control) for c in table.columns]
    printed = controls.count(False)
    if any(controls[:printed]):
        raise HoldfastError(f"{where}: columns with control have no published numbers; put them last")
    for measure in (table.measure, *(c.measure for c in table.columns), *(r.measure for r in table.row)):
        if measure:
            Measure.parse(measure, where)
    for row in table.row:
        at = f"{where}, row {row.name!r}"
        numbers = (*row.published, *row.spread)
        if not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in numbers):
            raise HoldfastError(f"{at}: published and spread must be numbers; write nan where the paper prints none")
        for key, given in (("published", row.published), ("spread", row.spread)):
            if len(given) != printed and (given or key == "published"):
                raise HoldfastError(
                    f"{at}: {key} must have one number for each of the {printed} columns, not {len(given)}"
                )
        if any(math.isnan(v) is False and v < 0 for v in row.spread):
            raise HoldfastError(f"{at}: spread must be at least 0; write nan where the paper prints none")
    check_claim(where, table)
    check_baseline(where, table)


def check_claim(where: str, table: PaperTable) -> None:
    """Check the tests of a table's claim."""
    columns, rows = [c.name for c in table.columns if not c.control], [r.name for r in table.row]
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


def check_readings(where: str, paper: Paper) -> None:
    """Check the choices, the readings, and what the tables say about them."""
    tables, choices = [t.id for t in paper.table], [c.name for c in paper.choice]
    once(where, "choice", choices)
    once(where, "reading", [PLAIN, *(r.name for r in paper.reading)])
    for reading in paper.reading:
        for name in reading.choices:
            if name not in choices:
                raise unknown("choice", name, choices, f"in {where}, reading {reading.name!r}")
    for choice in paper.choice:
        at = f"{where}, choice {choice.name!r}"
        if choice.measure:
            Measure.parse(choice.measure, at)
        for name in choice.set:
            if name not in FIELDS or name in ("method", "seed"):
                raise HoldfastError(f"{at}: {name} is no setting that a choice can set; leave it out")
        for id in choice.tables:
            if id not in tables:
                raise unknown("table", id, tables, f"in {at}")
    for table in paper.table:
        for key, id in (("level_of", table.level_of), ("same_runs_as", table.same_runs_as)):
            if id and id not in {t.id for t in paper.table if t.id != table.id}:
                raise HoldfastError(f"{where}, table {table.id}: {key} must name another table, not {id!r}")


def check_baseline(where: str, table: PaperTable) -> None:
    """Check that a table says which number decides how the paper is read, and that the claim does not test it."""
    named = [key for key in ("baseline", "level_of", "same_runs_as") if getattr(table, key)]
    if len(named) != 1 and table.expect:
        raise HoldfastError(f"{where}: a claim needs one of the keys baseline, level_of and same_runs_as")
    columns = [c.name for c in table.columns if not c.control and not c.variant_of]
    tested = {Expectation.parse(text).left for text in table.expect}
    for name in table.baselines:
        if name not in columns:
            raise HoldfastError(f"{where}: baseline must name a published column, not {name!r}")
        if name in tested:
            raise HoldfastError(f"{where}: the claim tests {name!r}, so it cannot be the baseline; name another column")


def once(where: str, kind: str, names: list[str]) -> None:
    """Check that no name appears twice.

    Args:
        where: The place that an error names.
        kind: What the names are of.
        names: The names.
    """
    for name in names:
        if names.count(name) > 1:
            raise HoldfastError(f"{where}: the {kind} {name!r} appears twice; rename one of them")
