"""Tables as users have them: other programs' files and frames, odd labels, and test samples of others' clients."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import holdfast
from helpers.commands import refused
from helpers.exact_errors import raises_exactly
from holdfast import from_arrays, from_csv, from_dataframe, from_parquet

pytestmark = pytest.mark.usefixtures("elsewhere")

DATES = ": turn it into a number, such as days since some day, or name it in drop"


def frame(**columns: Any) -> pd.DataFrame:
    """Twelve patients of three hospitals."""
    n = np.arange(12)
    return pd.DataFrame({"a": n % 5 / 2, "b": np.array(["u", "v"])[n % 2], "y": np.array(["k", "l"])[n // 6],
                         "c": np.array(["H1", "H2", "H3"])[n % 3]} | columns)  # fmt: skip


# Other programs' frames and files.


def test_what_turns_into_a_frame_is_one() -> None:
    pyarrow, datasets = pytest.importorskip("pyarrow"), pytest.importorskip("datasets")
    own = frame()
    wanted = from_dataframe(own, "y", client="c", test=own[::3])
    result = holdfast.run("fedavg", holdfast.federate(wanted), "linear", rounds=1, steps=1)
    for make in (pyarrow.Table.from_pandas, datasets.Dataset.from_pandas):
        found = from_dataframe(make(own), "y", client="c", test=make(own[::3].reset_index(drop=True)))
        assert torch.equal(found.x, wanted.x)
        assert (found.classes, found.clients) == (wanted.classes, wanted.clients)
        np.testing.assert_array_equal(result.predict(make(own)), result.predict(own))
        np.testing.assert_array_equal(result.encode(make(own)), result.encode(own))
    with raises_exactly("the frame is a list, expected a frame of pandas: convert it"):
        from_dataframe([[1, 2]], "y")


def test_columns_may_have_numbers_as_names() -> None:
    own = pd.DataFrame(np.random.default_rng(0).normal(size=(12, 3)).round(2))
    own[3], own[4] = [0, 1] * 6, ["u", "v", "w"] * 4
    found = from_dataframe(own, 3, client=4, drop=1)
    assert (found.x.shape, found.clients) == ((10, 2), ("u", "v", "w"))
    assert from_dataframe(own, [3], client=4, columns=[0]).x.shape == (10, 1)
    own[5] = [False] * 9 + [True] * 3
    assert len(from_dataframe(own, 3, client=4, test=5).test_y) == 3


def test_a_file_is_known_by_its_first_bytes() -> None:
    text = frame().to_csv(index=False)
    Path("packed.csv").write_bytes(gzip.compress(text.encode()))
    Path("plain.csv").write_text(text)
    assert torch.equal(from_csv("packed.csv", "y").x, from_csv("plain.csv", "y").x)
    frame().to_parquet("table.csv")
    with raises_exactly("table.csv is a Parquet file, expected CSV: read it with parquet(...) or from_parquet"):
        from_csv("table.csv", "y")
    frame().to_csv("table.zip", index=False)
    archive = "is an archive or a spreadsheet, expected CSV: unpack it, or save the sheet as CSV in UTF-8"
    with raises_exactly(f"table.zip {archive}"):
        from_csv("table.zip", "y")
    for column in ("PK", "PAR1"):  # names of columns are none of this
        Path("named.csv").write_text(text.replace("a,", f"{column},", 1))
        assert from_csv("named.csv", "y").encoding.columns[0].name == column  # type: ignore[union-attr]
    with raises_exactly("plain.csv is not a Parquet file: read CSV files with csv(...) or from_csv"):
        from_parquet("plain.csv", "y")


def test_whole_numbers_beyond_every_float_are_refused() -> None:
    for sign in (1, -1):
        with raises_exactly(
            f"the frame: column 'h' has {sign * np.inf:g} in sample 0, expected numbers of single precision: correct it"
        ):
            from_dataframe(frame(h=[sign * 10**400, *range(11)]), "y")


@pytest.mark.parametrize(
    "day",
    [
        "{} Jan 2020",
        "{}-Mar-20",
        "March {}, 2020",
        "{}/3/2020",
        "2020/03/{}",
        "{}.3.2020 10:30",
        "10:30:{}",
        "{}:00 pm",
    ],
)
def test_dates_and_times_are_recognised(day: str) -> None:
    with raises_exactly(f"the frame: column 'd' holds dates, expected numbers, booleans or texts{DATES}"):
        from_dataframe(frame(d=[day.format(10 + i % 4) for i in range(12)]), "y")


def test_ratios_and_words_are_no_dates() -> None:
    own = frame(titer=["1:20", "1:40", "1:80"] * 4, month=["Jan", "may be", "Dec 5"] * 4)
    assert from_dataframe(own, "y", columns=["titer", "month"]).x.shape[1] == 6


@pytest.mark.parametrize(
    ("file", "remedy"),
    [
        ("x.csv", "csv('x.csv', label=...)"),
        ("./x.csv.gz", "csv('./x.csv.gz', label=...)"),
        ("x.parquet", "parquet('x.parquet', label=...)"),
        ("../play.txt", "text('../play.txt')"),
    ],
)
def test_a_file_is_no_name_of_a_data_set(file: str, remedy: str) -> None:
    said = refused("run", "fedavg", "--data", file, "--rounds", "1")
    assert said == f"holdfast: {file} is a file, not the name of a data set: write {remedy}\n"


# Odd labels.


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            ["0,5", "1,2"] * 6,
            "column 'y' has numbers with a comma, such as '0,5': write decimals with a point, and thousands without a "
            "comma",
        ),
        (["2020-01-01", "2020-02-01"] * 6, f"column 'y' holds dates, expected numbers, booleans or texts{DATES}"),
        (
            [*map(str, range(10)), "unknown", "3"],
            "column 'y' has 'unknown' in sample 10, but most of its values are numbers: correct it, or set "
            'task="classification"',
        ),
    ],
)  # fmt: skip
def test_labels_that_are_probably_no_classes(labels: list[str], message: str) -> None:
    with raises_exactly(f"the frame: {message}"):
        from_dataframe(frame(y=labels), "y")
    assert from_dataframe(frame(y=labels), "y", task="classification", test=frame(y=labels)).task.has_classes


def test_a_class_that_may_stand_for_a_missing_label_is_named(caplog: pytest.LogCaptureFixture) -> None:
    assert from_dataframe(frame(y=["yes", "no", "NA"] * 4), "y").classes == ("NA", "no", "yes")
    warning = "the frame: label 'y' has the class 'NA': leave these samples out if it stands for a missing label"
    assert caplog.messages == [warning]
    caplog.clear()
    assert from_dataframe(frame(y=["mild", "severe", "none"] * 4), "y").classes == ("mild", "none", "severe")
    assert not caplog.messages


def test_texts_that_differ_in_capitals_alone_are_named(caplog: pytest.LogCaptureFixture) -> None:
    table = frame(y=["yes", "no", "Yes"] * 4, sex=["f", "m", "F"] * 4, home=["Ulm", "Bonn", "ulm"] * 4)
    assert from_dataframe(table, "y", client="home").classes == ("Yes", "no", "yes")
    assert caplog.messages == [
        f"the frame: column {pair}, which count as different: correct them if they are the same"
        for pair in ("'y' has both 'Yes' and 'yes'", "'sex' has both 'F' and 'f'", "'home' has both 'Ulm' and 'ulm'")
    ]


def test_one_class_is_written_as_one() -> None:
    assert repr(from_dataframe(frame(y="k"), "y")).endswith("1 class)")


# Whose test samples.


def test_who_only_tests_is_no_client(caplog: pytest.LogCaptureFixture) -> None:
    """An outside hospital counts in the common test score; N, names and clients' own scores leave it out."""
    held = frame()[:6].assign(c=["H1", "H2", "H9", "H9", "H1", "H8"])
    data = from_dataframe(frame(), "y", client="c", test=held)
    assert data.clients == ("H1", "H2", "H3")
    assert data.test_groups is not None
    assert data.test_groups.tolist() == [0, 1, -1, -1, 0, -1]
    warning = "3 of 6 test samples belong to nobody who has training samples, such as 'H8'"
    assert caplog.messages == [f"table: {warning}: they count in the common test score alone"]
    federation = holdfast.federate(data, client_test=0.2)
    result = holdfast.run("feddyn(0.1)", federation, "linear", rounds=1)
    assert federation.clients == result.config.clients == 3
    assert {name: row.samples for name, row in result.client_scores().items()} == {"H1": 2, "H2": 1}
    marked = pd.concat([frame(part="train"), held.assign(part="test")])
    again = from_dataframe(marked, "y", client="c", test="part")
    assert (again.clients, again.test_groups.tolist()) == (data.clients, data.test_groups.tolist())  # type: ignore[union-attr]
    caplog.set_level(logging.ERROR)
    huggingface = holdfast.from_huggingface(Rows(frame()), Rows(held), columns=["a"], label="y", client="c")
    assert (huggingface.clients, huggingface.test_groups.tolist()) == (again.clients, again.test_groups.tolist())  # type: ignore[union-attr]


class Rows:
    """The few methods of a Hugging Face data set that are used."""

    def __init__(self, own: pd.DataFrame) -> None:
        self.own, self.column_names = own, list(own.columns)

    def __getitem__(self, column: str) -> list[Any]:
        return list(self.own[column])


def test_a_client_whose_only_sample_is_held_out_stays_one() -> None:
    own = frame(c=["H1"] * 6 + ["H2"] * 5 + ["H3"])
    clients = {
        len(from_dataframe(own[[*own]].sample(frac=1, random_state=seed), "y", client="c").clients) for seed in range(9)
    }
    assert clients == {3}


def test_a_fraction_is_no_column() -> None:
    with raises_exactly("test is 0.2, expected a column or other samples: for a fraction set share=0.2"):
        from_dataframe(frame(), "y", test=0.2)


# Arrays and other libraries' data sets.


def test_arrays_say_who_reads_other_columns() -> None:
    with raises_exactly("x must be numbers, not object; use from_dataframe, which reads other columns too"):
        from_arrays(frame()[["a", "b"]], frame().y)


def test_whole_numbers_name_clients_without_a_point() -> None:
    groups = np.repeat([10.0, 9.0, 2.5], 4)
    assert from_arrays(np.eye(12), [0, 1] * 6, groups=groups).clients == ("2.5", "9", "10")
    own = frame(c=np.repeat([10.0, 9.0, 2.0], 4))
    assert from_dataframe(own, "y", client="c").clients == ("2", "9", "10")


def test_hugging_face_data_that_is_not_there() -> None:
    with raises_exactly(
        "from_huggingface needs a Dataset, not the name 'imdb': load it with datasets.load_dataset('imdb')"
    ):
        holdfast.from_huggingface("imdb")
    with raises_exactly(
        "the data set has no column 'image': name the inputs in image, columns or text; known: a, b, c, y"
    ):
        holdfast.from_huggingface(Rows(frame()))
    with raises_exactly("the data set has no column 'label': name the labels in label; known: a, b, c, y"):
        holdfast.from_huggingface(Rows(frame()), columns=["a"])


def test_labels_of_clients_are_of_one_type() -> None:
    with raises_exactly("y of client Ulm has 0, and that of the first 'a'; give values of one type"):
        holdfast.from_clients({"Bonn": ([[1.0], [2.0]], ["a", "b"]), "Ulm": ([[1.0]], [0])})
