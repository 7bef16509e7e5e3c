"""The labels of a table: one column of classes, or columns of numbers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.errors import HoldfastError, unknown
from holdfast.data.decide_encoding import in_order
from holdfast.data.table import (
    BOOLEAN,
    MISSING,
    NUMBER,
    TEXT,
    Table,
    as_numbers,
    as_text,
    objects,
    refuse_odd_texts,
    warn_of_capitals,
    where_none,
)
from holdfast.data.table_encoding import refuse_infinite
from holdfast.tasks.task import Task

log = logging.getLogger("holdfast")

MOST_CLASSES = 100  # that are recognised as such


@dataclass(frozen=True)
class TableLabels:
    """What the labels of a table are.

    Attributes:
        columns: Their columns.
        outputs: The class names, or the names of the columns of numbers.
        classes: Whether labels are classes.
    """

    columns: tuple[str, ...]
    outputs: tuple[str, ...]
    classes: bool


def decide_labels(
    table: Table, columns: Sequence[str], rows: np.ndarray, task: Task | None, positive: str | None = None
) -> TableLabels:
    """Decide what the labels of a table are.

    Args:
        table: The table.
        columns: The columns of the labels.
        rows: The training rows, whose classes are all classes.
        task: The task, if the user has named it.
        positive: The positive one of two classes; by default the second one.

    Returns:
        The labels: classes if there is one column, unless it has numbers that are not whole or the task is another.
    """
    columns = tuple(columns)
    if not columns:
        raise HoldfastError("label names no column: name at least one")
    wanted = task is not None and task.has_classes
    if len(columns) == 1 and (wanted or (task is None and _are_classes(table, columns[0]))):
        boolean = table.cells(columns[0]).kind == BOOLEAN
        classes = ["False", "True"] if boolean else in_order(set(_texts(table, columns[0])[rows]))
        _warn_of_missing(table, columns[0], classes)
        warn_of_capitals(table.where, columns[0], classes)
        return TableLabels(columns, _positive_last(table, columns[0], classes, positive), True)
    if wanted:
        raise HoldfastError(f"a sample has one class, but label names {len(columns)} columns: name one")
    if positive is not None:
        raise HoldfastError(f"positive needs two classes, but the labels of {table.where} are numbers: leave it out")
    return TableLabels(columns, columns, False)


def _positive_last(table: Table, name: str, classes: Sequence[str], positive: str | None) -> tuple[str, ...]:
    """Return the classes in order, except that the positive one is the second if the user has named it."""
    if positive is None:
        return tuple(classes)
    if len(classes) != 2:
        raise HoldfastError(f"positive needs two classes, but label {name!r} has {len(classes)}: leave it out")
    if positive not in classes:
        raise unknown("class", positive, classes, f"in column {name!r} of {table.where}")
    return (*(c for c in classes if c != positive), positive)


def read_labels(table: Table, labels: TableLabels) -> np.ndarray:
    """Return the labels of all rows: numbers of classes, int64 [n]; else float32 [n], or [n, columns] for several."""
    for name in labels.columns:
        if name not in table.names:
            raise unknown("column", name, table.names, f"in {table.where}")
    if labels.classes:
        numbers = {name: i for i, name in enumerate(labels.outputs)}
        texts = _texts(table, labels.columns[0])
        other = next((text for text in texts if text not in numbers), None)
        if other is not None:
            raise unknown("class", other, numbers, f"in column {labels.columns[0]!r} of {table.where}")
        return np.array([numbers[text] for text in texts], np.int64)
    found = [_numbers(table, name) for name in labels.columns]
    return np.stack(found, 1).astype(np.float32) if len(found) > 1 else found[0].astype(np.float32)


def _are_classes(table: Table, name: str) -> bool:
    """Tell whether a column holds classes: texts, booleans, or few whole numbers."""
    cells = table.cells(name)
    if cells.kind == NUMBER and not np.array_equal(cells.values, np.round(cells.values), equal_nan=True):
        return False
    if cells.kind == TEXT:
        refuse_odd_texts(table, name, cells, 'set task="classification"')
    count = len(set(_texts(table, name)))
    if count > MOST_CLASSES:
        raise HoldfastError(
            f"{table.where}: label {name!r} has {count} different values, which may be numbers or classes: set task to "
            "regression or classification"
        )
    return True


def _warn_of_missing(table: Table, name: str, classes: Sequence[str]) -> None:
    """Warn of classes that other programs write where there is no label; "none" may be one indeed."""
    odd = [text for text in classes if text.lower() in MISSING - {"none"}]
    if odd:
        log.warning("%s: label %r has the class %r: leave these samples out if it stands for a missing label",
                    table.where, name, odd[0])  # fmt: skip


def _texts(table: Table, name: str) -> np.ndarray:
    """Return the names of the classes of all rows; of whole numbers, the shortest way to write them."""
    cells, texts = table.cells(name), table.texts(name)
    _refuse_missing(table, name, where_none(texts))
    if cells.kind == BOOLEAN:
        _refuse_missing(table, name, cells.missing)
        return objects("True" if value else "False" for value in cells.values)
    if cells.kind == NUMBER:
        _refuse_missing(table, name, cells.missing)
        return objects(
            as_text(float(v)) if abs(v) < 2**53 else text for v, text in zip(cells.values, texts, strict=True)
        )
    return texts


def _numbers(table: Table, name: str) -> np.ndarray:
    values = as_numbers(table, name)
    _refuse_missing(table, name, np.isnan(values))
    refuse_infinite(table, name, values, np.arange(table.rows))
    return values


def _refuse_missing(table: Table, name: str, missing: np.ndarray) -> None:
    if missing.any():
        raise HoldfastError(
            f"{table.where}: label {name!r} has no value in sample {int(missing.argmax())}: fill it in, or leave the "
            "sample out"
        )
