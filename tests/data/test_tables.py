"""Tables as data sets: what columns become, what is refused, and that CSV, Parquet and frames agree."""

from __future__ import annotations

import csv
import datetime
import gzip
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import holdfast
from helpers.exact_errors import raises_exactly
from holdfast import from_csv, from_dataframe, from_parquet
from holdfast.data.prepare import hold_out_test
from holdfast.data.table import frame_table
from holdfast.data.table_encoding import encode

pytestmark = pytest.mark.usefixtures("elsewhere")

HEAD = "age,sex,smoker,ward,outcome,hospital\n"
ROWS = """61,f,true,A,ill,Köln
35.5,m,FALSE,B,well,Ulm
,f,true,,ill,Köln
44,m,false,B,well,Berlin
52,f,true,A,well,Ulm
38,m,false,C,ill,Berlin
"""
TEST = """70,f,true,C,ill,Ulm
,x,,Z,well,Köln
"""


def write(text: str, name: str = "x.csv") -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def hospital(**options: Any) -> holdfast.DataSet:
    return from_csv(write(HEAD + ROWS), "outcome", client="hospital", test=write(HEAD + TEST, "t.csv"), **options)


# What columns become.


def test_every_kind_of_column(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "holdfast"):
        data = hospital(normalise=False)
    assert data.encoding is not None
    names = ["age", "age missing", "sex=f", "sex=m", "smoker", "ward=A", "ward=B", "ward=C", "ward missing"]
    assert data.encoding.features == names
    mean = (61 + 35.5 + 44 + 52 + 38) / 5
    expected = [
        [61, 0, 1, 0, 1, 1, 0, 0, 0],
        [35.5, 0, 0, 1, 0, 0, 1, 0, 0],
        [mean, 1, 1, 0, 1, 0, 0, 0, 1],
        [44, 0, 0, 1, 0, 0, 1, 0, 0],
        [52, 0, 1, 0, 1, 1, 0, 0, 0],
        [38, 0, 0, 1, 0, 0, 0, 1, 0],
    ]
    assert data.x.dtype == torch.float32
    np.testing.assert_array_equal(data.x, np.array(expected, np.float32))
    # In the test rows: a missing boolean counts as the mean of the training rows, an unseen category as none.
    assert data.test_x[1].tolist() == pytest.approx([mean, 1, 0, 0, 0.5, 0, 0, 0, 0])
    assert data.test_x[0].tolist() == [70, 0, 1, 0, 1, 0, 0, 1, 0]
    assert caplog.messages == [
        "t.csv: 2 cells of the test data have a value that no training row has, such as sex = 'x': it counts as none "
        "of the known values"
    ]
    assert (data.classes, data.y.tolist(), data.test_y.tolist()) == (("ill", "well"), [0, 1, 0, 1, 1, 0], [0, 1])
    assert data.clients == ("Berlin", "Köln", "Ulm")
    assert data.groups is not None
    assert data.test_groups is not None
    assert (data.groups.tolist(), data.test_groups.tolist()) == ([1, 2, 1, 0, 2, 0], [2, 1])


def test_normalisation_is_that_of_arrays() -> None:
    """One-hot columns are normalised like all others, by the statistics of the training rows."""
    data, plain = hospital(), hospital(normalise=False)
    again = holdfast.from_arrays(plain.x, plain.y, plain.test_x, plain.test_y)
    assert (data.mean, data.std) == (again.mean, again.std)
    assert torch.equal(data.x, plain.x)


def test_codes_are_for_an_embedding(caplog: pytest.LogCaptureFixture) -> None:
    data = hospital(categories="codes")
    assert [(f.name, f.shape, f.integer) for f in data.fields] == [("numbers", (3,), False), ("codes", (2,), True)]
    numbers, codes = data.x[:, :3].numpy(), data.x[:, 3:].numpy()
    ages = np.array([61, 35.5, 44, 52, 38])
    wanted = (np.array([61, 35.5, ages.mean(), 44, 52, 38]) - ages.mean()) / ages.std()
    np.testing.assert_allclose(numbers[:, 0], wanted, atol=1e-6)
    assert numbers[:, 1].tolist() == [0, 0, 1, 0, 0, 0]
    np.testing.assert_allclose(numbers[:, 2], [1, -1, 1, -1, 1, -1])
    assert codes.tolist() == [[1, 1], [2, 2], [1, 4], [2, 2], [1, 1], [2, 3]]  # sex, ward; 4: missing
    assert data.test_x[:, 3:].tolist() == [[1, 3], [0, 0]]  # 0: neither known
    raw = hospital(categories="codes", normalise=False)
    assert raw.x[:2, 0].tolist() == [61, 35.5]


def test_what_the_encoding_is_depends_on_training_rows_alone() -> None:
    one = hospital()
    write(HEAD + "1000000,zzz,true,Q,ill,Ulm\n5,zzz,false,Q,well,Ulm\n", "t.csv")
    two = from_csv("x.csv", "outcome", client="hospital", test="t.csv")
    assert one.encoding == two.encoding
    assert (one.mean, one.std) == (two.mean, two.std)


def test_a_held_out_share_does_not_decide_either() -> None:
    """The mean that missing cells count as, and the known values, are those of the rows that are trained on."""
    rng = np.random.default_rng(0)
    n = 200
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": [f"v{i // 2}" for i in range(n)], "y": rng.integers(0, 2, n)})
    frame.loc[::7, "a"] = None
    data = from_dataframe(frame, "y", share=0.3, normalise=False)
    kept, held = hold_out_test(torch.tensor(frame.y.to_numpy()), 0.3)
    train = frame.iloc[kept.numpy()]
    assert data.encoding is not None
    number, category = data.encoding.columns
    assert number.fill == pytest.approx(train.a.mean(), rel=1e-12)
    assert category.values == sorted(set(train.b))
    assert len(category.values) < 100
    assert data.y.tolist() == train.y.tolist()
    assert data.test_y.tolist() == frame.y[held.numpy()].tolist()


def test_all_readers_agree() -> None:
    rng = np.random.default_rng(1)
    n = 60
    frame = pd.DataFrame(
        {
            "speed": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            "doors": rng.integers(2, 6, n),
            "colour": rng.choice(["red", "blue", None], n),
            "new": rng.random(n) < 0.5,
            "kind": rng.choice(["van", "car"], n),
            "dealer": rng.choice([9, 10, 200], n),
            "part": rng.choice(["train", "test"], n),
        }
    )
    frame.to_csv("a.csv", index=False)
    frame.to_csv("b.csv", index=False, sep=";", quoting=csv.QUOTE_ALL, lineterminator="\r\n", encoding="utf-8-sig")
    frame.to_parquet("a.parquet")
    Path("c.csv.gz").write_bytes(gzip.compress(Path("a.csv").read_bytes()))
    wanted = from_dataframe(frame, "kind", client="dealer", test="part")
    typed = frame.convert_dtypes().astype({"colour": "category", "kind": "category"})
    found = [
        from_dataframe(typed, "kind", client="dealer", test="part"),
        from_dataframe(frame.convert_dtypes(dtype_backend="pyarrow"), "kind", client="dealer", test="part"),
        from_dataframe(frame.astype(object), "kind", client="dealer", test="part"),
        from_csv("a.csv", "kind", client="dealer", test="part"),
        from_csv("b.csv", "kind", client="dealer", test="part"),
        from_csv("c.csv.gz", "kind", client="dealer", test="part"),
        from_parquet("a.parquet", "kind", client="dealer", test="part"),
        holdfast.load("csv('b.csv', label='kind', client='dealer', test='part')"),
        holdfast.load("parquet('a.parquet', label=kind, client=dealer, test=part)"),
    ]
    assert wanted.clients == ("9", "10", "200")
    for data in found:
        assert data.encoding == wanted.encoding
        for name in ("x", "y", "test_x", "test_y", "groups", "test_groups"):
            assert torch.equal(getattr(data, name), getattr(wanted, name)), name
        assert (data.classes, data.clients, data.mean, data.std) == (
            wanted.classes,
            wanted.clients,
            wanted.mean,
            wanted.std,
        )


def test_columns_in_any_order_and_others_besides() -> None:
    data = hospital(normalise=False)
    assert data.encoding is not None
    frame = pd.DataFrame({"ward": ["B"], "new": [3], "smoker": [True], "sex": ["m"], "age": [40]})
    assert encode(frame_table("f", frame), data.encoding).tolist() == [[40, 0, 0, 1, 1, 0, 1, 0, 0]]
    as_texts = frame.astype(str)
    assert encode(frame_table("f", as_texts), data.encoding).tolist() == [[40, 0, 0, 1, 1, 0, 1, 0, 0]]


def test_numbers_that_stand_for_categories() -> None:
    text = "zip,y\n" + "01,a\n1,b\n01,b\n1,a\n" * 3
    data = from_csv(write(text), "y", categorical="zip", normalise=False)
    assert data.encoding is not None
    assert data.encoding.features == ["zip=01", "zip=1"]
    frame = pd.DataFrame({"zip": [2, 10, 2, 10], "y": list("abba")})
    data = from_dataframe(frame, "y", categorical=["zip"], test=frame)
    assert data.encoding is not None
    assert data.encoding.features == ["zip=2", "zip=10"]


def test_chosen_columns() -> None:
    for options in ({"columns": ["age"]}, {"drop": ["sex", "ward", "smoker"]}):
        data = hospital(**options)
        assert data.encoding is not None
        assert [column.name for column in data.encoding.columns] == ["age"]


def test_constant_columns_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    frame = pd.DataFrame({"a": [1, 2, 3, 4], "b": 7, "c": "de", "d": [None] * 4, "y": list("abab")})
    data = from_dataframe(frame, "y", test=frame)
    assert data.x.shape == (4, 1)
    assert caplog.messages == ["the frame: left out, since all training rows have the same value: b, c, d"]


# Labels.


@pytest.mark.parametrize(
    ("cells", "classes", "y"),
    [
        (["b", "a", "b", "a"], ("a", "b"), [1, 0, 1, 0]),
        (["true", "False", "TRUE", "true"], ("False", "True"), [1, 0, 1, 1]),
        (["10", "9", "10", "9"], ("9", "10"), [1, 0, 1, 0]),
        (["1.0", "2", "01", "2"], ("1", "2"), [0, 1, 0, 1]),
        (["-1", "1", "1", "-1"], ("-1", "1"), [0, 1, 1, 0]),
        (["NA", "b", "NA", "b"], ("NA", "b"), [0, 1, 0, 1]),
        (
            ["9007199254740993", "9007199254740992", "9007199254740993", "9007199254740992"],
            ("9007199254740992", "9007199254740993"),
            [1, 0, 1, 0],
        ),
    ],
)
def test_classes(cells: list[str], classes: tuple[str, ...], y: list[int]) -> None:
    path = write("x,y\n" + "".join(f"{i},{cell}\n" for i, cell in enumerate(cells)))
    data = from_csv(path, "y", test=path)
    assert (data.task.name, data.classes, data.y.tolist()) == ("classification", classes, y)


@pytest.mark.parametrize(
    ("cells", "positive", "classes", "y"),
    [
        (["ill", "well", "ill", "well"], "ill", ("well", "ill"), [1, 0, 1, 0]),
        (["ill", "well", "ill", "well"], "well", ("ill", "well"), [0, 1, 0, 1]),
        (["true", "false", "true", "true"], False, ("True", "False"), [0, 1, 0, 0]),
        (["1", "2", "1", "2"], 1, ("2", "1"), [1, 0, 1, 0]),
    ],
)
def test_the_positive_class_is_the_second(cells: list[str], positive: Any, classes: tuple[str, ...], y: list[int]):
    path = write("x,y\n" + "".join(f"{i},{cell}\n" for i, cell in enumerate(cells)))
    data = from_csv(path, "y", test=path, positive=positive)
    assert (data.classes, data.y.tolist(), data.test_y.tolist()) == (classes, y, y)
    named = holdfast.load(f"csv('{path}', label=y, test='{path}', positive='{positive}')")
    assert (named.classes, named.y.tolist()) == (classes, y)


def test_numbers_to_predict() -> None:
    path = write("x,y,z\n1,0.5,7\n2,1.5,8\n3,2,9\n")
    data = from_csv(path, "y", columns="x", test=path)
    assert (data.task.name, data.classes, data.y.tolist()) == ("regression", ("y",), [[0.5], [1.5], [2]])
    data = from_csv(path, ["y", "z"], test=path)
    assert (data.task.name, data.classes, data.y[0].tolist()) == ("regression", ("y", "z"), [0.5, 7])
    data = from_csv(path, "z", task="regression", columns="x", test=path)
    assert (data.task.name, data.y.tolist()) == ("regression", [[7], [8], [9]])
    held = from_csv(write("x,y\n" + "".join(f"{i * i},{i}.5\n" for i in range(100))), "y")
    assert (len(held.y), len(held.test_y)) == (80, 20)


def test_several_labels() -> None:
    path = write("x,cough,fever\n1,1,true\n2,0,false\n3,0,true\n")
    data = from_csv(path, ["cough", "fever"], test=path)
    assert (data.task.name, data.classes) == ("multilabel", ("cough", "fever"))
    assert data.y.tolist() == [[1, 1], [0, 0], [0, 1]]


# What is refused.

NAMELESS = "x.csv: column 0 has no name: name it, or delete it; pandas writes an index so without index=False"
EXPECTED = ", expected 2 as in the first line: correct it, and quote cells that contain the separator"
SINGLE = ", expected numbers of single precision: correct it"
DATES = ", expected numbers, booleans or texts: turn it into a number, such as days since some day, or name it in drop"
COMMA = ": write decimals with a point, and thousands without a comma"
MANY = "".join(f"{i * i},{i}\n" for i in range(101))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.csv is empty: give a line of column names and a line per sample"),
        ("\n \n", NAMELESS),
        ("a,y\n", "x.csv has no samples, only column names: add a line per sample"),
        ("1,2\n3,4\n", "x.csv has numbers in its first line, expected the names of the columns: add such a line"),
        (",a,y\n0,1,a\n", NAMELESS),
        ("a,a,y\n0,1,a\n", "x.csv: two columns are called 'a': rename one of them"),
        (
            "a,y\n1,b\n2\n",
            f"x.csv: sample 1 has 1 cells{EXPECTED}",
        ),
        (
            "a,y\n1,b,c\n",
            f"x.csv: sample 0 has 3 cells{EXPECTED}",
        ),
        ('a,y\n"1,b\n', "x.csv is not a proper CSV file, unexpected end of data: correct its quotes"),
        ('a,y\n"1"2,b\n', "x.csv is not a proper CSV file, ',' expected after '\"': correct its quotes"),
        ("a,z\n1,b\n", "unknown column 'y' in x.csv; known: a, z"),
        ("a,y\n1,b\n2,\n", "x.csv: label 'y' has no value in sample 1: fill it in, or leave the sample out"),
        ("a,y\n1,1\n2,NA\n", "x.csv: label 'y' has no value in sample 1: fill it in, or leave the sample out"),
        ("a,y\n1,b\n", "x.csv: one sample per class leaves nothing to test on; give test samples"),
        ("y\nb\nb\n", "x.csv has no column with different values to learn from: add one"),
        ("a,y\n1,b\n1,b\n", "x.csv has no column with different values to learn from: add one"),
        (
            f"a,y\n{MANY}",
            "x.csv: label 'y' has 101 different values, which may be numbers or classes: set task to regression or "
            "classification",
        ),
        ("a,y\n1,b\ninf,b\n", f"x.csv: column 'a' has inf in sample 1{SINGLE}"),
        ("a,y\n1e39,b\n2,b\n", f"x.csv: column 'a' has 1e+39 in sample 0{SINGLE}"),
        (
            "a,y\n" + "".join(f"{1_700_000_000 + i % 3},b\n" for i in range(9)),
            "x.csv: column 'a' has numbers near 1.7e+09 that differ by about 0.83, too little for single precision: "
            "subtract a constant from them first",
        ),
        (
            "a,y\n" + "".join(f"{i + 1},b\n" for i in range(20)),
            "x.csv: column 'a' numbers the rows, 1 to 20: leave it out with drop='a'",
        ),
        (
            "a,y\n" + "".join(f"P{i},b\n" for i in range(30)),
            "x.csv: column 'a' has a different text in every row, such as 'P0': leave it out with drop='a'",
        ),
        (
            "a,y\n2020-01-02,b\n2021-01-02 10:00,b\n",
            f"x.csv: column 'a' holds dates{DATES}",
        ),
        (
            'a,y\n"1,5",b\n"2,5",b\n3,b\n',
            f"x.csv: column 'a' has numbers with a comma, such as '1,5'{COMMA}",
        ),
        (
            'a,y\n"1,000",b\n"12,500.75",b\n3,b\n',
            f"x.csv: column 'a' has numbers with a comma, such as '1,000'{COMMA}",
        ),
        (
            "a,y\n" + "".join(f"{i / 2} mg,b\n{i},c\n" for i in range(11)),
            "x.csv: column 'a' has numbers with a unit, such as '0.0 mg': write the numbers alone, or name the column "
            "in categorical",
        ),
        (
            "a,y\n" + "".join(f"1,{i}%\n2,{i}%\n" for i in range(11)),
            "x.csv: column 'y' has numbers with a unit, such as '0%': write the numbers alone, or set "
            'task="classification"',
        ),
        (
            "a,y\n1,b\n2,b\nunknown,b\n",
            "x.csv: column 'a' has 'unknown' in sample 2, but most of its values are numbers: correct it, or name the "
            "column in categorical",
        ),
    ],
)  # fmt: skip
def test_tables_that_are_refused(text: str, message: str) -> None:
    with raises_exactly(message):
        from_csv(write(text), "y")


def test_files_that_are_refused() -> None:
    Path("bytes.csv").write_bytes(b"a,y\n\xff,b\n")
    Path("bad.parquet").write_bytes(b"PAR1 and nothing else")
    Path("bad.csv.gz").write_text("no")
    Path("folder.csv").mkdir()
    pd.DataFrame({"a": [], "y": []}).to_parquet("none.parquet")
    with raises_exactly("bytes.csv is not in UTF-8: convert it"):
        from_csv("bytes.csv", "y")
    with raises_exactly("none.csv does not exist: give the file of a table"):
        from_csv("none.csv", "y")
    with raises_exactly("folder.csv is a folder: give the file of a table"):
        from_csv("folder.csv", "y")
    with raises_exactly("none.parquet has no samples: add a row per sample"):
        from_parquet("none.parquet", "y")
    with raises_exactly("cannot read bad.csv.gz: Not a gzipped file (b'no'); check the file"):
        from_csv("bad.csv.gz", "y")
    with pytest.raises(
        holdfast.HoldfastError, match=r"^bad.parquet is not a readable Parquet file, .*: check the file$"
    ):
        from_parquet("bad.parquet", "y")
    with raises_exactly("separator must be one character, such as ',' or ';', not ';;'"):
        from_csv(write("a,y\n1,b\n"), "y", separator=";;")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            pd.date_range("2020", periods=4),
            f"the frame: column 'a' holds dates{DATES}",
        ),
        (
            [datetime.date(2020, 1, 1)] * 4,
            f"the frame: column 'a' holds dates{DATES}",
        ),
        (
            [[1], [2], [3], [4]],
            "the frame: column 'a' has a list, expected numbers, booleans or texts: convert it, or name it in drop",
        ),
        (
            [1j, 2, 3, 4],
            "the frame: column 'a' has a complex, expected numbers, booleans or texts: convert it, or name it in drop",
        ),
        (
            ["a", 2, 3, 4],
            "the frame: column 'a' has a int, expected numbers, booleans or texts: convert it, or name it in drop",
        ),
    ],
)
def test_frames_that_are_refused(values: Any, message: str) -> None:
    with raises_exactly(message):
        from_dataframe(pd.DataFrame({"a": values, "y": list("abab")}), "y")


def test_options_that_are_refused() -> None:
    good = pd.DataFrame({"a": [1, 2, 3, 4], "c": list("uvuv"), "t": [0, 0, 1, 1], "y": list("abab")})
    with raises_exactly("the frame is a list, expected a frame of pandas: convert it"):
        from_dataframe([1], "y")
    with raises_exactly("the frame has no rows: give one per sample"):
        from_dataframe(good[:0], "y")
    with raises_exactly("unknown column 'u' in the frame; known: a, c, t, y"):
        from_dataframe(good, "y", drop="u")
    with raises_exactly("column 'y' is named twice in label, client and test: give each another column"):
        from_dataframe(good, "y", client="y")
    with raises_exactly("columns names 'y', which is not an input: leave it out of columns"):
        from_dataframe(good, "y", columns=["a", "y"])
    with raises_exactly("label names no column: name at least one"):
        from_dataframe(good, [])
    with raises_exactly("a sample has one class, but label names 2 columns: name one"):
        from_dataframe(good, ["y", "c"], task="classification")
    with raises_exactly("the frame: column 'c' has 'u' in sample 0, expected a number: correct it"):
        from_dataframe(good, ["a", "c"])
    with raises_exactly("categories must be one of onehot, codes, not 'hash'"):
        from_dataframe(good, "y", categories="hash")
    with raises_exactly("the frame has no column of categories: leave out categories='codes'"):
        from_dataframe(good, "y", categories="codes", drop="c")
    with raises_exactly("share must be in (0, 1), not 2; use one such as 0.2"):
        from_dataframe(good, "y", share=2)
    with raises_exactly(
        "the frame: column 'c' has 'u' in sample 0, expected train or test, or true or false: correct it"
    ):
        from_dataframe(good, "y", test="c")
    with raises_exactly("the frame: column 't' leaves no test sample: correct it"):
        from_dataframe(good[:2], "y", test="t")
    with raises_exactly("test is 'u', which is neither a column of x.csv nor a file: name one or the other"):
        from_csv(write(HEAD + ROWS), "outcome", test="u")
    with raises_exactly("the test frame lacks the columns a, c, t, which the model uses: add them"):
        from_dataframe(good, "y", test=good[["y"]])
    with raises_exactly("unknown class 'z' in column 'y' of the test frame; known: a, b"):
        from_dataframe(good, "y", test=good.assign(y="z"))
    with raises_exactly("unknown class 'z' in column 'y' of the frame; known: a, b"):
        from_dataframe(good, "y", positive="z")
    with raises_exactly("positive needs two classes, but label 'y' has 3: leave it out"):
        from_dataframe(good.assign(y=list("abca")), "y", positive="a")
    with raises_exactly("positive needs two classes, but the labels of the frame are numbers: leave it out"):
        from_dataframe(good, "a", task="regression", positive="a")
    with raises_exactly("the frame: column 'c' names no client in sample 3: fill it in, or leave it out"):
        from_dataframe(good.assign(c=["u", "v", "u", None]), "y", client="c", test=good)


def test_missing_and_unseen_values_as_errors() -> None:
    good = pd.DataFrame({"a": [1, 2, 3, 4], "c": list("uvuv"), "y": list("abab")})
    with raises_exactly("the frame: column 'a' has no value in sample 2: fill it in, or set empty='mean'"):
        from_dataframe(good.assign(a=[1, 2, None, 4]), "y", test=good, empty="error")
    with raises_exactly("the test frame: column 'c' has no value in sample 3: fill it in, or set empty='mean'"):
        from_dataframe(good, "y", test=good.assign(c=["u", "v", "u", None]), empty="error")
    with raises_exactly(
        "the test frame: column 'c' has 'w' in sample 1, which no training row has: correct it, or set unseen='other'"
    ):
        from_dataframe(good, "y", test=good.assign(c=list("uwuv")), unseen="error")
    with raises_exactly("the test frame: column 'b' has 2 in sample 0, expected true or false: correct it"):
        from_dataframe(good.assign(b=[True, False] * 2), "y", test=good.assign(b=2))


def test_more_categories_than_can_be_one_hot() -> None:
    frame = pd.DataFrame({"c": [f"v{i % 1001}" for i in range(2002)], "y": [0, 1] * 1001})
    with raises_exactly(
        "the frame: column 'c' has 1001 different values, but at most 1000 can be one-hot: leave it out with drop='c', "
        "or set categories='codes'"
    ):
        from_dataframe(frame, "y", test=frame)
    assert from_dataframe(frame, "y", test=frame, categories="codes").x.max() == 1001


def test_packages_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """CSV files need no package; the others say which."""
    pd.DataFrame({"a": [1, 2], "y": [0, 1]}).to_parquet("x.parquet")
    path = write(HEAD + ROWS)
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    assert len(from_csv(path, "outcome", test=path).y) == 6
    with raises_exactly("x.parquet needs the package pandas: pip install 'holdfast[tables]'"):
        from_parquet("x.parquet", "y")
    with raises_exactly("x.parquet needs the package pandas: pip install 'holdfast[tables]'"):
        holdfast.load("parquet('x.parquet', label='y')")


def test_sources_name_what_is_missing() -> None:
    with raises_exactly("csv: label is missing (the column of the labels, or a list of columns): write csv(label=...)"):
        holdfast.load("csv('x.csv')")
    with raises_exactly("csv: label must be a word or a list of words, not [1, 2]"):
        holdfast.load("csv('x.csv', label=[1, 2])")
    with raises_exactly("none.csv does not exist: give the file of a table"):
        holdfast.load("csv('none.csv', label=y)")
    with raises_exactly("csv: categories must be one of onehot, codes, not hash"):
        holdfast.load("csv('none.csv', label=y, categories=hash)")
    text = "csv(path=x.csv, label=[outcome, 'a b'], client=hospital, drop=[ward])"
    assert str(holdfast.data.sources.source(text)) == text
