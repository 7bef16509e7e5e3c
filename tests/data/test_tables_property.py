"""Any table, however odd: read as a reader by hand reads it, or refused in one line; never a traceback."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from holdfast import DataSet, HoldfastError, from_csv, from_dataframe
from holdfast.data.table import recognised
from holdfast.data.table_files import read_csv

# Cells as people write them: quotes, separators, line breaks, scripts of all kinds, and signs of missing values.
ODD = st.text(st.sampled_from("ab'\"\n\r,;|\t é漢🙂0١_-\u00a0\x00"), max_size=6)
WRITTEN = st.sampled_from(
    ["", "NA", "n/a", "NaN", "null", "None", "?", "-", "true", "False", "1", "1.0", "01", "-2.5e3"]
)
HUGE = st.sampled_from([str(2**63), str(10**30), "1e308", "1e400", "inf", "0.1", "1_000", "0x10", "1,5", "2020-01-02"])
CELLS = st.one_of(ODD, WRITTEN, HUGE, st.integers(-5, 5).map(str), st.floats(allow_nan=False, width=16).map(repr))


def bytes_of(rows: list[list[str]], separator: str, ending: str, quoting: Any, bom: bool) -> bytes:
    file = io.StringIO()
    csv.writer(file, delimiter=separator, lineterminator=ending, quoting=quoting).writerows(rows)
    return (b"\xef\xbb\xbf" if bom else b"") + file.getvalue().encode()


LAYOUTS = st.tuples(
    st.sampled_from(",;\t|"),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    st.booleans(),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of all tables of this module."""
    return tmp_path_factory.mktemp("tables") / "x.csv"


def read_or_refused(path: Path, **options: Any) -> DataSet | None:
    """The data set, or None if the table is refused: in one line, and never with a traceback."""
    try:
        return from_csv(path, "y", test=path, **options)
    except HoldfastError as error:
        message = str(error)
    assert message
    assert len(message.splitlines()) == 1, message
    return None


@settings(max_examples=300)
@given(rows=st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=8), layout=LAYOUTS)
@example(rows=[["\r", "a", "b"]], layout=(",", "\n", csv.QUOTE_ALL, True))
def test_cells_are_read_as_they_were_written(path: Path, rows: list[list[str]], layout: tuple[Any, ...]) -> None:
    """Whatever the separator, the quoting, the line ends and the byte order mark; spaces around cells do not count."""
    if layout[2] != csv.QUOTE_ALL:  # Python's writer leaves a lone carriage return without quotes
        rows = [[cell.replace("\r", "") for cell in row] for row in rows]
    path.write_bytes(bytes_of([["x", "y z", "ü"], *rows], *layout))
    table = read_csv(path, layout[0])
    assert (table.names, table.rows) == (("x", "y z", "ü"), len(rows))
    for number, name in enumerate(table.names):
        assert list(table.texts(name)) == [row[number].strip() or None for row in rows]
        cells = table.cells(name)
        for cell, value in zip((row[number].strip() for row in rows), cells.values, strict=True):
            if cells.kind == "number":
                known = cell.lower() not in {"", "na", "n/a", "nan", "null", "none", "?"}
                assert value == float(cell) if known else math.isnan(value)
            elif cells.kind == "boolean":
                assert {"true": 1, "false": 0}.get(cell.lower()) == value or math.isnan(value)
            else:
                assert value == (cell or None)


@settings(max_examples=300)
@given(content=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@example(content=b"")
@example(content=b"\xef\xbb\xbf")
@example(content=b"a,y")
@example(content=b"a,y\n\n\n")
@example(content=b"a,y\r1,2\r")
@example(content=b'a,y\n"\n')
@example(content=b"a,y\n1,2\n")
@example(content=b"\x00,y\n1,2\n")
def test_any_file_is_read_or_refused_in_one_line(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    read_or_refused(path)


@settings(max_examples=300)
@given(rows=st.lists(st.tuples(CELLS, CELLS, st.sampled_from("ab")), min_size=1, max_size=12), codes=st.booleans())
def test_any_cells_become_finite_numbers_or_one_line(path: Path, rows: list[tuple[str, str, str]], codes: bool) -> None:
    path.write_bytes(bytes_of([["x", "z", "y"], *map(list, rows)], ",", "\n", csv.QUOTE_ALL, False))
    data = read_or_refused(path, categories="codes" if codes else "onehot")
    if data is None:
        return
    assert bool(torch.isfinite(data.x).all())
    assert torch.equal(data.x, data.test_x)  # the same rows: encoded alike, nothing of them unseen


@settings(max_examples=300)
@given(st.lists(CELLS.map(str.strip), min_size=1, max_size=4))
@example(["1_000", "2"])
@example(["١", "2"])
@example(["１２"])
@example(["0x10"])
@example(["-inf", "1e400"])
def test_numbers_are_what_pandas_takes_for_numbers(cells: list[str]) -> None:
    present = [cell for cell in cells if cell.lower() not in {"", "na", "n/a", "nan", "null", "none", "?"}]
    wanted = pd.to_numeric(pd.Series(present, dtype=object), errors="coerce")
    found = recognised(cells)
    assert (found.kind == "number") == (bool(present) and not wanted.isna().any())
    if found.kind == "number":
        assert [value for value in found.values if value == value] == wanted.tolist()


# Against pandas: numbers, categories and missing values encoded by another library.


@settings(max_examples=100)
@given(st.data())
def test_one_hot_is_that_of_pandas(draw: st.DataObject) -> None:
    n = draw.draw(st.integers(4, 19))
    numbers = draw.draw(st.lists(st.none() | st.floats(-100, 100, width=16), min_size=n, max_size=n))
    texts = draw.draw(st.lists(st.none() | st.sampled_from(["u", "v", "w w", "é", "NA"]), min_size=n, max_size=n))
    held = np.array(draw.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    frame = pd.DataFrame({"a": pd.Series(numbers, dtype=float), "c": pd.Series(texts, dtype=object)})
    train = frame[~held]
    known = [v for v in train.a if v == v]
    assume(len(set(known)) > 1 and train.c.nunique() > 1 and held.any())
    assume(np.std(known) > 1e-3)
    data = from_dataframe(frame.assign(y="k", t=held), "y", test="t", normalise=False)

    wanted = pd.DataFrame({"a": frame.a.fillna(np.mean(known))})
    if train.a.isna().any():
        wanted["a missing"] = frame.a.isna()
    values = sorted(train.c.dropna().unique())
    one_hot = pd.get_dummies(pd.Categorical(frame.c.where(frame.c.isin(values)), categories=values))
    wanted = pd.concat([wanted, one_hot.set_index(frame.index)], axis=1)
    if train.c.isna().any():
        wanted["c missing"] = frame.c.isna()
    found = np.empty(wanted.shape, np.float32)
    found[~held], found[held] = data.x.numpy(), data.test_x.numpy()
    np.testing.assert_allclose(found, wanted.to_numpy(np.float64), rtol=1e-6, atol=1e-6)


@settings(max_examples=100)
@given(st.lists(st.sampled_from(["u", "v", "w", ""]), min_size=2, max_size=10), st.integers(0, 3))
def test_unseen_values_never_look_like_known_ones(cells: list[str], new: int) -> None:
    """A row with an unseen value has zeros in all columns of its category, or code 0."""
    assume(len(set(cells)) > 1)
    train = pd.DataFrame({"c": [cell or None for cell in cells], "y": "k"})
    test = pd.DataFrame({"c": ["x"] * (new + 1), "y": "k"})
    data: DataSet = from_dataframe(train, "y", test=test)
    assert not data.test_x.any()
    assert bool((data.x.sum(1) == 1).all())
    coded = from_dataframe(train, "y", test=test, categories="codes")
    assert not coded.test_x.any()
    assert int(coded.x.min()) == 1
