"""A table of samples: named columns whose cells are numbers, booleans or texts, from a CSV file or a pandas frame."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.data.arrays import as_name, is_missing

log = logging.getLogger("holdfast")

NUMBER, BOOLEAN, TEXT, CATEGORY = "number", "boolean", "text", "category"
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})  # of numbers and booleans; a missing text is empty
BOOLEANS = {"true": 1.0, "false": 0.0}
MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?(?: ?[ap]m)?| ?[ap]m)"  # 1:40 alone may be a ratio
DAY = (
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(?:[T ].*)?",
    r"\d{1,2}([-/.])\d{1,2}\1\d{2,4}(?: .*)?",
    rf"\d{{1,2}}[ -]{MONTH}[ -]\d{{2,4}}(?: .*)?",
    rf"{MONTH} \d{{1,2}}, ?\d{{4}}(?: .*)?",
    CLOCK,
)
DATE = re.compile("|".join(DAY), re.IGNORECASE)
COMMA = re.compile(r"[+-]?\d+(?:,\d+)+(?:\.\d*)?")
UNIT = re.compile(r"([€$£¥]?) ?[+-]?\d+(?:\.\d*)? ?([^\W\d_]{0,4}|[%°€$£¥]|°[CF])")  # 5 mg, 12.5%, $3
MANY_UNITS = 10  # fewer different numbers with a unit may be steps of a scale, such as doses


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a column.

    Attributes:
        kind: What they are: ``number``, ``boolean``, ``text``, or ``category`` if it is known that they are.
        values: float64 [n] with NaN where a cell is missing; for texts and categories objects, with None there.
    """

    kind: str
    values: np.ndarray

    @property
    def missing(self) -> np.ndarray:
        """Where cells are missing: bool [n]."""
        if self.numeric:
            empty: np.ndarray = np.isnan(self.values)
            return empty
        return where_none(self.values)

    @property
    def numeric(self) -> bool:
        """Whether they are numbers or booleans."""
        return self.kind in (NUMBER, BOOLEAN)


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of equal length.

    Attributes:
        where: What holds them, for error messages.
        names: The columns, in order.
        rows: The number of rows.
        cells: Reads the cells of a column as what they look like.
        texts: Reads the cells of a column as texts, exactly as they are written: objects, with None where missing.
    """

    where: str
    names: tuple[str, ...]
    rows: int
    cells: Callable[[str], Cells]
    texts: Callable[[str], np.ndarray]


def text_table(where: str, columns: Mapping[str, Sequence[str]]) -> Table:
    """Make a table of cells that are all texts, as in a CSV file."""
    rows = len(next(iter(columns.values())))

    def texts(name: str) -> np.ndarray:
        return objects(cell or None for cell in columns[name])

    return Table(where, tuple(columns), rows, cache(lambda name: recognised(columns[name])), cache(texts))


def frame_table(where: str, frame: Any) -> Table:
    """Make a table of a pandas frame."""
    names = [str(name) for name in frame.columns]
    refuse_duplicates(where, names)
    numbers = {name: i for i, name in enumerate(names)}

    def cells(name: str) -> Cells:
        return _of_series(where, name, frame.iloc[:, numbers[name]])

    def texts(name: str) -> np.ndarray:
        return objects(map(as_text, frame.iloc[:, numbers[name]].tolist()))

    return Table(where, tuple(names), len(frame), cache(cells), cache(texts))


def as_frame(x: Any) -> Any:
    """Return a pandas frame, made of a table of Polars, Arrow or Hugging Face if need be; None: it is neither."""
    if not hasattr(x, "iloc") and hasattr(x, "to_pandas"):
        x = x.to_pandas()
    return x if hasattr(x, "iloc") and hasattr(x, "columns") else None


def refuse_duplicates(where: str, names: Sequence[str]) -> None:
    """Raise an error if two columns have the same name, or one has none."""
    seen = set[str]()
    for i, name in enumerate(names):
        if not name:
            raise HoldfastError(
                f"{where}: column {i} has no name: name it, or delete it; pandas writes an index so without index=False"
            )
        if name in seen:
            raise HoldfastError(f"{where}: two columns are called {name!r}: rename one of them")
        seen.add(name)


def objects(values: Iterable[Any]) -> np.ndarray:
    """Return values as an array of objects, whatever they are."""
    found = list(values)
    array = np.empty(len(found), object)
    array[:] = found
    return array


def where_none(values: np.ndarray) -> np.ndarray:
    """Tell where objects are None: bool [n]."""
    return np.array([value is None for value in values], bool)


def as_text(value: Any) -> str | None:
    """Write a cell of a frame as text; a whole number has no point, and a missing cell is None.

    >>> as_text(2.0), as_text(True), as_text(" b "), as_text(None)
    ('2', 'True', 'b', None)
    """
    if is_missing(value):
        return None
    return as_name(value).strip() or None


def recognised(cells: Sequence[str]) -> Cells:
    """Recognise what cells are that are written as texts.

    >>> recognised(["1", "NA", "2.5"]).values.tolist(), recognised(["true", "FALSE"]).kind, recognised(["NA", "a"]).kind
    ([1.0, nan, 2.5], 'boolean', 'text')
    """
    plain = [cell if cell.lower() not in MISSING else "" for cell in cells]
    present = {cell.lower() for cell in plain if cell}
    if present and present <= BOOLEANS.keys():
        return Cells(BOOLEAN, np.array([BOOLEANS[cell.lower()] if cell else np.nan for cell in plain]))
    numbers = _numbers(plain) if present else None
    return Cells(TEXT, objects(cell or None for cell in cells)) if numbers is None else Cells(NUMBER, numbers)


def _numbers(cells: Sequence[str]) -> np.ndarray | None:
    """Return all cells as numbers, NaN where they are empty; None if one is anything else."""
    joined = "".join(cells)
    if not joined.isascii() or "_" in joined:  # Python's float takes 1_000 and digits of every script
        return None
    try:
        return np.array([float(cell) if cell else np.nan for cell in cells])
    except ValueError:
        return None


def as_numbers(table: Table, name: str) -> np.ndarray:
    """Return a column as numbers, NaN where a cell is missing; any other text is an error."""
    cells = table.cells(name)
    if cells.numeric:
        return cells.values
    plain = ["" if value is None or value.lower() in MISSING else value for value in cells.values]
    found = recognised(plain)
    if found.numeric or not any(plain):
        return found.values if found.numeric else np.full(len(plain), np.nan)
    i = next(i for i, value in enumerate(plain) if _numbers([value]) is None)
    raise HoldfastError(f"{table.where}: column {name!r} has {plain[i]!r} in sample {i}, expected a number: correct it")


def refuse_odd_texts(table: Table, name: str, cells: Cells, otherwise: str) -> None:
    """Raise an error for texts that are dates, or that are probably numbers with something else among them.

    Args:
        table: The table.
        name: The column.
        cells: Its texts.
        otherwise: What to do if they are categories nevertheless.
    """
    present = {value for value in cells.values if value is not None}
    if present and all(map(DATE.fullmatch, present)):
        raise dates(table.where, name)
    others = {value for value in present if _numbers([value]) is None}
    if others and all(map(COMMA.fullmatch, others)):
        raise HoldfastError(
            f"{table.where}: column {name!r} has numbers with a comma, such as {min(others)!r}: write decimals with a "
            "point, and thousands without a comma"
        )
    units = {found.groups() if (found := UNIT.fullmatch(value)) else None for value in others}
    if len(others) > MANY_UNITS and len(units) == 1 and None not in units:
        raise HoldfastError(
            f"{table.where}: column {name!r} has numbers with a unit, such as {min(others)!r}: write the numbers "
            f"alone, or {otherwise}"
        )
    if others and len(others) <= len(present) / 2:
        i = next(i for i, value in enumerate(cells.values) if value in others)
        raise HoldfastError(
            f"{table.where}: column {name!r} has {cells.values[i]!r} in sample {i}, but most of its values are numbers"
            f": correct it, or {otherwise}"
        )


def warn_of_capitals(where: str, name: str, values: Iterable[str]) -> None:
    """Warn of texts that differ in capitals or spaces alone, such as Yes and yes: they count as different."""
    first: dict[str, str] = {}
    for value in values:
        other = first.setdefault("".join(value.split()).casefold(), value)
        if other != value:
            log.warning("%s: column %r has both %r and %r, which count as different: correct them if they are the same",
                        where, name, other, value)  # fmt: skip
            return


def dates(where: str, name: str) -> HoldfastError:
    """Return the error for a column of dates."""
    return HoldfastError(
        f"{where}: column {name!r} holds dates, expected numbers, booleans or texts: turn it into a number, such as "
        "days since some day, or name it in drop"
    )


def _real(value: Any) -> float:
    """Return a number as a float; whole numbers that are too large for one are infinite, as they are in a file."""
    try:
        return float(value)
    except OverflowError:
        return -math.inf if value < 0 else math.inf


def _of_series(where: str, name: str, series: Any) -> Cells:
    """Read a column of a frame by its type; objects are read one by one."""
    kind = getattr(series.dtype, "kind", "O")
    if kind in "Mm" or str(series.dtype).startswith(("date", "time", "period", "timestamp", "duration")):
        raise dates(where, name)
    if str(series.dtype) == "category":
        return Cells(CATEGORY, objects(map(as_text, series.tolist())))
    if kind in "biuf":
        return Cells(BOOLEAN if kind == "b" else NUMBER, series.to_numpy(np.float64, na_value=np.nan))
    values = [None if is_missing(value) else value for value in series.tolist()]
    present = [value for value in values if value is not None]
    for kinds, found in (((bool, np.bool_), BOOLEAN), ((int, float, np.number, Decimal), NUMBER)):
        if present and all(isinstance(v, kinds) and (found == BOOLEAN or not isinstance(v, bool)) for v in present):
            return Cells(found, np.array([np.nan if v is None else _real(v) for v in values]))
    odd = next((v for v in present if not isinstance(v, str)), None)
    if odd is not None:
        if type(odd).__name__ in ("date", "datetime", "time", "Timestamp", "Timedelta", "Period"):
            raise dates(where, name)
        raise HoldfastError(
            f"{where}: column {name!r} has a {type(odd).__name__}, expected numbers, booleans or texts: convert it, or "
            "name it in drop"
        )
    return Cells(TEXT, objects(map(as_text, values)))
