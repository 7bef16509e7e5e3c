"""How the columns of a table become the numbers of a sample: decided on training rows, stored with the model.

A number or a boolean is one number. A category is one number per known value (one-hot), or one code for an embedding: 0
stands for any other value, 1, 2, ... for the known ones. If a column has missing cells in the training rows, one more
number says where; with codes, that is the last code of a category. A missing number counts as the mean of the training
rows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.data.table import BOOLEAN, CATEGORY, Table, as_numbers, where_none

log = logging.getLogger("holdfast")

ONEHOT, CODES = "onehot", "codes"
MEAN, OTHER, ERROR = "mean", "other", "error"
SHOWN = 5  # columns that a message names

Encoded = np.ndarray | dict[str, np.ndarray]


@dataclass(frozen=True)
class EncodedColumn:
    """How one column is encoded.

    Attributes:
        name: The column.
        kind: ``number``, ``boolean`` or ``category``.
        values: The known values of a category, in the order of their numbers.
        fill: What a missing number counts as.
        shift: What is subtracted from numbers.
        scale: What they are then divided by.
        missing: Whether one more number, or code, says where a cell is missing.
    """

    name: str
    kind: str
    values: list[str]
    fill: float = 0.0
    shift: float = 0.0
    scale: float = 1.0
    missing: bool = False

    @property
    def features(self) -> list[str]:
        """The names of its numbers, if categories are one-hot."""
        own = [f"{self.name}={value}" for value in self.values] if self.kind == CATEGORY else [self.name]
        return own + [f"{self.name} missing"] * self.missing


@dataclass(frozen=True)
class TableEncoding:
    """How every column of a table is encoded.

    Attributes:
        columns: The columns that the model uses.
        categories: Whether categories are ``onehot`` or ``codes``.
        empty: What missing cells are: ``mean``, or an ``error``.
        unseen: What values are that no training row has: ``other``, or an ``error``.
    """

    columns: list[EncodedColumn]
    categories: str = ONEHOT
    empty: str = MEAN
    unseen: str = OTHER

    @property
    def features(self) -> list[str]:
        """The names of the numbers of a sample, in order; those of codes, which are columns, come last."""
        coded = [column for column in self.columns if self.categories == CODES and column.kind == CATEGORY]
        named = [feature for column in self.columns if column not in coded for feature in column.features]
        return named + [column.name for column in coded]


def encode(table: Table, encoding: TableEncoding, rows: np.ndarray | None = None, what: str = "the samples") -> Encoded:
    """Encode rows of a table.

    Args:
        table: The table. Its columns may be in any order, and others are ignored.
        encoding: The encoding.
        rows: The rows to encode; by default all.
        what: The name of the rows, for warnings.

    Returns:
        Numbers, float32 [n, features]; with codes a dictionary of ``numbers``, if there are any, and ``codes``, int64
        [n, categories].
    """
    _refuse_lacking(table, encoding)
    rows = np.arange(table.rows) if rows is None else rows
    unseen: list[str] = []
    numbers, codes = list[np.ndarray](), list[np.ndarray]()
    for column in encoding.columns:
        if column.kind != CATEGORY:
            numbers.append(_numbers(table, column, encoding, rows))
            continue
        found = _codes(table, column, encoding, rows, unseen)
        known = np.arange(1, 1 + len(column.values) + column.missing)
        (numbers if encoding.categories == ONEHOT else codes).append(
            found[:, None] == known if encoding.categories == ONEHOT else found[:, None]
        )
    if unseen:
        cells, have = ("1 cell", "has") if len(unseen) == 1 else (f"{len(unseen)} cells", "have")
        log.warning("%s: %s of %s %s a value that no training row has, such as %s: it counts as none of the known "
                    "values", table.where, cells, what, have, unseen[0])  # fmt: skip
    if encoding.categories == ONEHOT:
        return np.concatenate(numbers, 1, dtype=np.float32)
    parts = {"numbers": np.concatenate(numbers, 1, dtype=np.float32)} if numbers else {}
    return parts | {"codes": np.concatenate(codes, 1, dtype=np.int64)}


def _refuse_lacking(table: Table, encoding: TableEncoding) -> None:
    names = [column.name for column in encoding.columns]
    lacking = [name for name in names if name not in table.names]
    if lacking:
        columns = f"column{'s' * (len(lacking) > 1)} {listed(lacking)}"
        raise HoldfastError(
            f"{table.where} lacks the {columns}, which the model uses: add {'it' if len(lacking) == 1 else 'them'}"
        )


def _numbers(table: Table, column: EncodedColumn, encoding: TableEncoding, rows: np.ndarray) -> np.ndarray:
    """Encode a column of numbers or booleans: [n, 1], or [n, 2] with what says where a cell is missing."""
    values = as_numbers(table, column.name)[rows]
    empty = np.isnan(values)
    _refuse_missing(table, column, encoding, rows, empty)
    refuse_infinite(table, column.name, values, rows)
    if column.kind == BOOLEAN and not np.isin(values[~empty], (0, 1)).all():
        i = int(rows[(~empty & ~np.isin(values, (0, 1))).argmax()])
        given = as_numbers(table, column.name)[i]
        raise HoldfastError(
            f"{table.where}: column {column.name!r} has {given:g} in sample {i}, expected true or false: correct it"
        )
    ready = (np.where(empty, column.fill, values) - column.shift) / column.scale
    return np.stack([ready, empty][: 1 + column.missing], 1)


def _codes(
    table: Table, column: EncodedColumn, encoding: TableEncoding, rows: np.ndarray, unseen: list[str]
) -> np.ndarray:
    """Return the code of every cell of a category; cells with code 0 are described in ``unseen``."""
    texts = table.texts(column.name)[rows]
    _refuse_missing(table, column, encoding, rows, where_none(texts))
    known: dict[str | None, int] = {value: i for i, value in enumerate(column.values, 1)}
    if column.missing:
        known[None] = len(known) + 1
    codes = np.array([known.get(text, 0) for text in texts], np.int64)
    for i in np.flatnonzero(codes == 0):
        if encoding.unseen == ERROR and texts[i] is not None:
            raise HoldfastError(
                f"{table.where}: column {column.name!r} has {texts[i]!r} in sample {rows[i]}, which no training row "
                f"has: correct it, or set unseen={OTHER!r}"
            )
        unseen.append(f"{column.name} = {texts[i]!r}" if texts[i] is not None else f"no {column.name}")
    return codes


def _refuse_missing(
    table: Table, column: EncodedColumn, encoding: TableEncoding, rows: np.ndarray, empty: np.ndarray
) -> None:
    if encoding.empty == ERROR and empty.any():
        i = int(rows[empty.argmax()])
        raise HoldfastError(
            f"{table.where}: column {column.name!r} has no value in sample {i}: fill it in, or set empty={MEAN!r}"
        )


def refuse_infinite(table: Table, name: str, values: np.ndarray, rows: np.ndarray) -> None:
    """Raise an error if a number is infinite, or too large for single precision.

    Args:
        table: The table.
        name: The column.
        values: Its numbers in some rows.
        rows: These rows.
    """
    bad = np.abs(values) > np.finfo(np.float32).max
    if bad.any():
        i = int(bad.argmax())
        raise HoldfastError(
            f"{table.where}: column {name!r} has {values[i]:g} in sample {rows[i]}, expected numbers of single "
            "precision: correct it"
        )


def listed(names: Sequence[str]) -> str:
    """Join names with commas; those after the first few are counted."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
