"""Your own data as a table: a CSV file, a Parquet file or a pandas frame, with a row per sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.core.errors import HoldfastError, unknown
from holdfast.data.dataset import DataSet
from holdfast.data.decide_encoding import decide_encoding, in_order
from holdfast.data.given_clients import owners_of_tests
from holdfast.data.prepare import hold_out_test
from holdfast.data.table import BOOLEAN, Table, as_frame, frame_table, warn_of_capitals
from holdfast.data.table_encoding import MEAN, ONEHOT, OTHER, encode
from holdfast.data.table_files import read_csv, read_parquet, read_table
from holdfast.data.table_labels import decide_labels, read_labels
from holdfast.data.targets import stored_targets, task_of
from holdfast.data.user_arrays import from_arrays
from holdfast.tasks.task import Task
from holdfast.tasks.task_names import read_task

Names = str | int | Sequence[str | int]  # columns of a frame may have numbers as names
PARTS = {"train": False, "training": False, "0": False, "test": True, "1": True}  # what a test column may say


def from_csv(
    path: str | Path, label: Names, *, test: str | Path | None = None, separator: str | None = None, **options: Any
) -> DataSet:
    """Make a data set from a CSV file in UTF-8 whose first line has the names of the columns.

    Args:
        path: The file, possibly gzipped.
        label: The column of the labels, or several.
        test: The test samples: a column that says ``test`` or ``train``, or is true or false; or another such file.
            Without it, a fixed share of every class is held out.
        separator: What separates cells; by default the comma, semicolon, tab or bar that occurs most often in the first
            line.
        options: Those of ``from_dataframe``.

    Returns:
        The checked data set.
    """
    table = read_csv(_existing(path), separator)
    return from_dataframe(table, label, test=_test(table, test, separator), **{"name": Path(path).name, **options})


def from_parquet(path: str | Path, label: Names, *, test: str | Path | None = None, **options: Any) -> DataSet:
    """Make a data set from a Parquet file.

    Args:
        path: The file.
        label: The column of the labels, or several.
        test: The test samples: a column or another file, as in ``from_csv``.
        options: Those of ``from_dataframe``.

    Returns:
        The checked data set.
    """
    table = read_parquet(_existing(path))
    return from_dataframe(table, label, test=_test(table, test), **{"name": Path(path).name, **options})


def from_dataframe(
    frame: Any,
    label: Names,
    *,
    client: str | int | None = None,
    test: Any = None,
    columns: Names | None = None,
    drop: Names = (),
    categorical: Names = (),
    categories: str = ONEHOT,
    empty: str = MEAN,
    unseen: str = OTHER,
    task: str | Task | None = None,
    positive: str | bool | int | None = None,
    share: float = 0.2,
    name: str = "table",
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    normalise: bool | str = True,
) -> DataSet:
    """Make a data set from a pandas frame with a row per sample.

    Anything that turns into such a frame works too: a table of Polars, Arrow or Hugging Face.

    Everything that is computed (the values of categories, means) comes from the training rows alone. It is stored with
    the model, so that ``Result.predict`` takes a frame of raw rows, in any order of columns.

    Args:
        frame: The frame.
        label: The column of the labels, or several.
        client: The column that names each sample's client. Clients are those of the training samples.
        test: The test samples: a column that says ``test`` or ``train``, or is true or false; or another frame. Without
            it, a fixed share of every class is held out.
        columns: The columns of the inputs; by default all others.
        drop: Columns to leave out.
        categorical: Columns of numbers that stand for categories.
        categories: ``onehot``: a number per value; ``codes``: a sample is a dictionary of ``numbers``, which are
            normalised, and ``codes``, integers for an embedding, where 0 stands for any value that is not known.
        empty: What a missing input is: ``mean``, the mean of the training rows, beside which one more number says
            where cells are missing if there are such training rows, and a category of its own for categories; or an
            ``error``.
        unseen: What a category is that no training row has: ``other``, none of the known ones; or an ``error``.
        task: The task, if it cannot be told from the labels.
        positive: Which of two classes is the positive one, whose recall and precision are shown and which
            ``pos_weight`` weights; by default the second in order, such as ``yes`` of ``no`` and ``yes``.
        share: The share of every class to hold out where there are no test samples.
        name: The name of the data set.
        mean: The mean per number of a sample, if you know it.
        std: The standard deviation per number of a sample.
        normalise: Where mean and standard deviation come from, as in ``from_arrays``.

    Returns:
        The checked data set.
    """
    table = _table("the frame", frame)
    labels, drop, categorical = _tuple(label), _tuple(drop), _tuple(categorical)
    client = None if client is None else str(client)
    test = _test_column(table, test)
    own = [*labels, *([client] if client else []), *([test] if isinstance(test, str) else [])]
    inputs = _inputs(table, own, columns, drop)
    _check_names(table, [*own, *categorical])
    held = table if test is None or isinstance(test, str) else _table("the test frame", test)
    everything = np.arange(table.rows)
    rows, test_rows = (everything, np.arange(held.rows)) if held is not table else _marked(table, test)
    wanted = None if positive is None else str(positive)
    known = decide_labels(table, labels, rows, read_task(task) if isinstance(task, str) else task, wanted)
    y, test_y = read_labels(table, known), read_labels(held, known)
    kind = task_of(task, y, torch.empty(0))
    if test is None:
        rows, test_rows = _held_out(table, y, kind, share)
    scale = normalise not in (False, "off")
    encoding = decide_encoding(
        table, inputs, rows, categorical, scale, categories=categories, empty=empty, unseen=unseen
    )
    x, test_x = encode(table, encoding, rows), encode(held, encoding, test_rows, "the test data")
    data = from_arrays(
        x, y[rows], test_x, test_y[test_rows], classes=known.outputs, name=name, task=kind, mean=mean, std=std,
        normalise=normalise,
    )  # fmt: skip
    data = replace(data, encoding=encoding)
    if client is None:
        return data
    given = {*_clients(client, table, rows)} | ({*_clients(client, table, test_rows)} if test is None else set())
    names = in_order(given)
    warn_of_capitals(table.where, client, names)
    return _with_clients(data, client, names, (table, rows), (held, test_rows))


def _existing(path: str | Path) -> Path:
    found = Path(path).expanduser()
    if not found.is_file():
        raise HoldfastError(
            f"{found} {'is a folder' if found.is_dir() else 'does not exist'}: give the file of a table"
        )
    return found


def _test(table: Table, test: str | Path | None, separator: str | None = None) -> str | Table | None:
    """Return the column of the test samples, or the table of another file."""
    if test is None or str(test) in table.names:
        return None if test is None else str(test)
    path = Path(test).expanduser()
    if not path.is_file():
        raise HoldfastError(
            f"test is {str(test)!r}, which is neither a column of {table.where} nor a file: name one or the other"
        )
    return read_table(path, separator)


def _table(where: str, frame: Any) -> Table:
    found = frame if isinstance(frame, Table) else as_frame(frame)
    if found is None:
        raise HoldfastError(f"{where} is a {type(frame).__name__}, expected a frame of pandas: convert it")
    table = found if isinstance(found, Table) else frame_table(where, found)
    if not table.rows:
        raise HoldfastError(f"{where} has no rows: give one per sample")
    return table


def _tuple(names: Names) -> tuple[str, ...]:
    """Return the names of columns, which may be numbers in a frame, as texts."""
    return (str(names),) if isinstance(names, str | int) else tuple(map(str, names))


def _test_column(table: Table, test: Any) -> Any:
    """Return the name of the column that marks test samples as a text; a frame, or nothing, as it is."""
    if isinstance(test, float):
        raise HoldfastError(f"test is {test:g}, expected a column or other samples: for a fraction set share={test:g}")
    return str(test) if isinstance(test, int) else test


def _check_names(table: Table, names: Sequence[str]) -> None:
    for name in names:
        if name not in table.names:
            raise unknown("column", str(name), table.names, f"in {table.where}")


def _inputs(table: Table, own: Sequence[str], columns: Names | None, drop: Sequence[str]) -> list[str]:
    """Return the columns of the inputs."""
    for i, name in enumerate(own):
        if name in own[:i]:
            raise HoldfastError(f"column {name!r} is named twice in label, client and test: give each another column")
    _check_names(table, own)
    _check_names(table, drop)
    if columns is None:
        return [name for name in table.names if name not in own and name not in drop]
    _check_names(table, _tuple(columns))
    for name in _tuple(columns):
        if name in own or name in drop:
            raise HoldfastError(f"columns names {name!r}, which is not an input: leave it out of columns")
    return list(dict.fromkeys(_tuple(columns)))


def _marked(table: Table, test: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the training rows and the test rows, as a column says; without one all are training rows."""
    if test is None:
        return np.arange(table.rows), np.arange(0)
    known = PARTS | ({"true": True, "false": False} if table.cells(test).kind == BOOLEAN else {})
    texts = [str(text).lower() for text in table.texts(test)]
    other = next((i for i, text in enumerate(texts) if text not in known), None)
    if other is not None:
        found = table.texts(test)[other]
        raise HoldfastError(
            f"{table.where}: column {test!r} has {found!r} in sample {other}, expected train or test, or true or "
            "false: correct it"
        )
    held = np.array([known[text] for text in texts])
    for part, rows in (("training", ~held), ("test", held)):
        if not rows.any():
            raise HoldfastError(f"{table.where}: column {test!r} leaves no {part} sample: correct it")
    return np.flatnonzero(~held), np.flatnonzero(held)


def _held_out(table: Table, y: np.ndarray, task: Task, share: float) -> tuple[np.ndarray, np.ndarray]:
    if not 0 < share < 1:
        raise HoldfastError(f"share must be in (0, 1), not {share}; use one such as 0.2")
    targets = y if task.has_classes else stored_targets("label", y, task).numpy()
    rows, held = hold_out_test(torch.from_numpy(task.strata(targets)[0]), share)
    if not len(held):
        raise HoldfastError(f"{table.where}: one sample per class leaves nothing to test on; give test samples")
    return rows.numpy(), held.numpy()


def _with_clients(
    data: DataSet, client: str, names: Sequence[str], train: tuple[Table, np.ndarray], test: tuple[Table, np.ndarray]
) -> DataSet:
    """Return the data set with the client of every sample.

    Args:
        data: The data set.
        client: The column of the clients.
        names: The clients, in order.
        train: The table and the rows of the training samples.
        test: Those of the test samples, whose table need not name any clients.

    Returns:
        The data set. Test samples of anybody else, such as a hospital that does not take part, are nobody's.
    """
    numbers = {name: i for i, name in enumerate(names)}
    groups = torch.tensor([numbers[name] for name in _clients(client, *train)], dtype=torch.int64)
    held = _clients(client, *test) if client in test[0].names else []
    return replace(data, groups=groups, clients=tuple(names), test_groups=owners_of_tests(held, numbers, data.name))


def _clients(client: str, table: Table, rows: np.ndarray) -> list[str]:
    texts = table.texts(client)[rows]
    missing = next((i for i, text in enumerate(texts) if text is None), None)
    if missing is not None:
        raise HoldfastError(
            f"{table.where}: column {client!r} names no client in sample {rows[missing]}: fill it in, or leave it out"
        )
    return list(texts)
