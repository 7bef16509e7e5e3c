"""Decide how the columns of a table are encoded, and refuse those from which nothing can be learned."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.data.table import CATEGORY, NUMBER, TEXT, Cells, Table, refuse_odd_texts, warn_of_capitals
from holdfast.data.table_encoding import (
    CODES,
    ERROR,
    MEAN,
    ONEHOT,
    OTHER,
    EncodedColumn,
    TableEncoding,
    listed,
    refuse_infinite,
)

log = logging.getLogger("holdfast")

CHOICES = {"categories": (ONEHOT, CODES), "empty": (MEAN, ERROR), "unseen": (OTHER, ERROR)}
MOST_VALUES = 1000  # of a category that is one-hot
FEW_ROWS = 20  # with fewer, a different text in every row may be a coincidence
SMALLEST_SPREAD = 1e-5  # standard deviation of a column over its largest number: single precision has seven digits


def decide_encoding(
    table: Table, names: Sequence[str], rows: np.ndarray, categorical: Collection[str], scale: bool, **choices: str
) -> TableEncoding:
    """Decide how the columns of a table are encoded.

    Args:
        table: The table.
        names: The columns to use.
        rows: The training rows: values and means are theirs alone.
        categorical: Columns that are categories, whatever their cells look like.
        scale: Whether numbers beside codes are normalised; those beside one-hot categories are normalised later.
        choices: ``categories``, ``empty`` and ``unseen`` of ``TableEncoding``.

    Returns:
        The encoding. Columns with the same value in all training rows are left out.
    """
    for name, value in choices.items():
        if value not in CHOICES[name]:
            raise HoldfastError(f"{name} must be one of {', '.join(CHOICES[name])}, not {value!r}")
    codes = choices["categories"] == CODES
    found, constant = list[EncodedColumn](), list[str]()
    for name in names:
        cells = _cells(table, name, name in categorical)
        numeric = cells.numeric
        column = (
            _numbers(table, name, cells, rows, codes and scale)
            if numeric
            else _category(table, name, cells, rows, codes)
        )
        if column is None:
            constant.append(name)
        else:
            found.append(column)
    if not found:
        raise HoldfastError(f"{table.where} has no column with different values to learn from: add one")
    if codes and all(column.kind != CATEGORY for column in found):
        raise HoldfastError(f"{table.where} has no column of categories: leave out categories={CODES!r}")
    if constant:
        log.warning("%s: left out, since all training rows have the same value: %s", table.where, listed(constant))
    return TableEncoding(found, **choices)


def _cells(table: Table, name: str, category: bool) -> Cells:
    if category:
        return Cells(CATEGORY, table.texts(name))
    cells = table.cells(name)
    if cells.kind == TEXT:
        refuse_odd_texts(table, name, cells, "name the column in categorical")
    return cells


def _numbers(table: Table, name: str, cells: Cells, rows: np.ndarray, scale: bool) -> EncodedColumn | None:
    """Decide on a column of numbers or booleans; None: it has one value."""
    values = cells.values[rows]
    refuse_infinite(table, name, cells.values, np.arange(table.rows))
    _refuse_row_numbers(table, name, cells)
    missing = np.isnan(values)
    known = values[~missing]
    if not len(known) or (known.min() == known.max() and not missing.any()):
        return None
    mean, std = float(known.mean()), float(known.std())
    if 0 < std < SMALLEST_SPREAD * np.abs(known).max():
        raise HoldfastError(
            f"{table.where}: column {name!r} has numbers near {mean:.6g} that differ by about {std:.2g}, too little "
            "for single precision: subtract a constant from them first"
        )
    shift, by = (mean, std or 1.0) if scale else (0.0, 1.0)
    return EncodedColumn(name, cells.kind, [], mean, shift, by, bool(missing.any()))


def _refuse_row_numbers(table: Table, name: str, cells: Cells) -> None:
    """Refuse a column that counts the rows of the table: it says nothing about new samples."""
    values = cells.values
    if cells.kind != NUMBER or len(values) < FEW_ROWS or np.isnan(values).any():
        return
    if np.array_equal(np.sort(values), values.min() + np.arange(len(values))):
        raise HoldfastError(
            f"{table.where}: column {name!r} numbers the rows, {values.min():.0f} to {values.max():.0f}: leave it out "
            f"with drop={name!r}"
        )


def _category(table: Table, name: str, cells: Cells, rows: np.ndarray, codes: bool) -> EncodedColumn | None:
    """Decide on a column of categories; None: it has one value."""
    texts = [value for value in cells.values[rows] if value is not None]
    values, missing = in_order(set(texts)), len(texts) < len(rows)
    if not values or (len(values) == 1 and not missing):
        return None
    if len(values) == len(rows) >= FEW_ROWS:
        raise HoldfastError(
            f"{table.where}: column {name!r} has a different text in every row, such as {values[0]!r}: leave it out "
            f"with drop={name!r}"
        )
    if len(values) > MOST_VALUES and not codes:
        raise HoldfastError(
            f"{table.where}: column {name!r} has {len(values)} different values, but at most {MOST_VALUES} can be "
            f"one-hot: leave it out with drop={name!r}, or set categories={CODES!r}"
        )
    warn_of_capitals(table.where, name, values)
    return EncodedColumn(name, CATEGORY, values, missing=missing)


def in_order(values: Collection[str]) -> list[str]:
    """Sort texts; whole numbers by their size.

    >>> in_order({"10", "9"}), in_order({"10", "9", "a"})
    (['9', '10'], ['10', '9', 'a'])
    """
    whole = all(v.isascii() and v.removeprefix("-").isdigit() and len(v) < 19 and str(int(v)) == v for v in values)
    return sorted(values, key=int) if whole else sorted(values)
