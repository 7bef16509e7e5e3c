"""Runs on a hospital's table, from the file to predictions on raw rows: both engines, resume, report, export."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import holdfast
from helpers.commands import good, lines, refused
from helpers.exact_errors import raises_exactly
from helpers.flower_toys import MemoryGrid, on_grid

pytestmark = pytest.mark.usefixtures("elsewhere")

DATA = "csv('patients.csv', label=outcome, client=hospital, test=part)"
SMALL = ("--split", "given", "--clients", "3", "--cohort", "3", "--steps", "3", "--model", "linear", "--quiet")


def patients(n: int = 240) -> pd.DataFrame:
    """Rows with every kind of column, missing values, and a ward that only test rows have."""
    rng = np.random.default_rng(7)
    frame = pd.DataFrame(
        {
            "age": rng.normal(55, 12, n).round(1),
            "sex": rng.choice(["f", "m"], n),
            "smoker": rng.random(n) < 0.3,
            "pressure": np.where(rng.random(n) < 0.15, np.nan, rng.normal(125, 15, n)),
            "ward": rng.choice(["A", "B, new", None], n),
            "hospital": rng.choice(["Köln", "Ulm", "Berlin"], n),
            "part": rng.choice(["train", "test"], n, p=[0.8, 0.2]),
        }
    )
    risk = (frame.age - 55) / 12 + frame.smoker + (frame.sex == "m") * 0.5 + rng.normal(0, 0.5, n)
    return frame.assign(outcome=np.where(risk > 0.4, "ill", "well"))


@pytest.fixture
def frame() -> pd.DataFrame:
    rows = patients()
    rows.loc[rows.index[rows.part == "test"][:2], "ward"] = "C"
    rows.to_csv("patients.csv", index=False)
    return rows


def by_hand(rows: pd.DataFrame, train: pd.DataFrame) -> np.ndarray:
    """The numbers of rows, with pandas alone."""
    columns = [
        rows.age,
        rows.sex == "f",
        rows.sex == "m",
        rows.smoker,
        rows.pressure.fillna(train.pressure.mean()),
        rows.pressure.isna(),
        rows.ward == "A",
        rows.ward == "B, new",
        rows.ward.isna(),
    ]
    return np.stack([column.to_numpy(np.float64) for column in columns], 1)


def softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True)


def test_raw_rows_are_predicted_as_computed_by_hand(frame: pd.DataFrame, caplog: pytest.LogCaptureFixture) -> None:
    good("run", "fedavg", "--data", DATA, *SMALL, "--rounds", "3", "--out", "run")
    result = holdfast.load_run("run")
    train = frame[frame.part == "train"]
    x, own = by_hand(frame, train), by_hand(train, train)
    state = {name: t.double().numpy() for name, t in result.state_dict().items()}
    ready = (x - own.mean(0)) / own.std(0)
    wanted = softmax(ready @ state["head.weight"].T + state["head.bias"])
    shuffled = frame[["outcome", "ward", "pressure", "smoker", "sex", "age"]]
    caplog.clear()
    np.testing.assert_allclose(result.predict_proba(shuffled), wanted, atol=1e-5)
    assert caplog.messages == [
        "the frame: 2 cells of the samples have a value that no training row has, such as ward = 'C': it counts as "
        "none of the known values"
    ]
    assert [result.classes[i] for i in result.predict(frame)] == [("ill", "well")[i] for i in wanted.argmax(1)]
    held = (frame.part == "test").to_numpy()
    right = np.array(["ill", "well"])[wanted.argmax(1)] == frame.outcome.to_numpy()
    assert result.summary["final"] == pytest.approx(right[held].mean())
    # Encoded numbers are accepted as well.
    np.testing.assert_allclose(result.predict_proba(x.astype(np.float32)), wanted, atol=1e-5)


def test_predictions_from_files(frame: pd.DataFrame) -> None:
    good("run", "fedavg", "--data", DATA, *SMALL, "--rounds", "1", "--out", "run")
    result = holdfast.load_run("run")
    new = frame.drop(columns=["outcome", "hospital", "part"])[::-1]
    new.to_csv("new.csv", index=False, sep=";")
    new.to_parquet("new.parquet")
    for name in ("new.csv", "new.parquet"):
        head, *rows = list(csv.reader(io.StringIO(good("predict", "run", "--data", name).out)))
        assert head == ["sample", "class", "ill", "well"]
        found = np.array([[float(cell) for cell in row[2:]] for row in rows])
        np.testing.assert_allclose(found, result.predict_proba(new), atol=1e-6)
    new.drop(columns=["age"]).to_csv("few.csv", index=False)
    assert refused("predict", "run", "--data", "few.csv") == (
        "holdfast: few.csv lacks the column age, which the model uses: add it\n"
    )
    new.drop(columns=["age", "ward"]).to_csv("few.csv", index=False)
    assert refused("predict", "run", "--data", "few.csv") == (
        "holdfast: few.csv lacks the columns age, ward, which the model uses: add them\n"
    )
    new.assign(age="old").to_csv("text.csv", index=False)
    assert refused("predict", "run", "--data", "text.csv") == (
        "holdfast: text.csv: column 'age' has 'old' in sample 0, expected a number: correct it\n"
    )
    with raises_exactly("the frame lacks the column sex, which the model uses: add it"):
        result.predict(new.drop(columns="sex"))


def test_rows_in_another_form(frame: pd.DataFrame) -> None:
    result = holdfast.run("fedavg", holdfast.federate(holdfast.load(DATA)), "linear", rounds=1, steps=1, out="run")
    remedy = "give raw rows as a frame of pandas, such as pandas.DataFrame([row])"
    for row, kind in ((frame.iloc[0].to_dict(), "dict"), (frame.iloc[0], "Series"), (frame.to_dict("records"), "list")):
        with raises_exactly(f"the model was trained on a table, and x is a {kind}: {remedy}"):
            result.predict(row)
    with raises_exactly("encode needs raw rows as a frame of pandas, not a dict: convert them"):
        result.encode(frame.iloc[0].to_dict())
    row = frame.iloc[0].to_dict()
    assert result.predict(pd.DataFrame([row])).tolist() == result.predict(frame[:1]).tolist()
    frame.to_csv("packed.csv.gz", index=False)
    assert good("predict", "run", "--data", "packed.csv.gz").out == good("predict", "run", "--data", "patients.csv").out
    assert refused("predict", "run", "--data", "packed.txt.gz") == (
        "holdfast: packed.txt.gz does not exist: check --data\n"
    )


@pytest.mark.parametrize("label", ["outcome", "age", "[ill, smoker]"])
@pytest.mark.parametrize("method", ["scaffold", "feddyn(0.1)"])
def test_every_task_on_every_engine(frame: pd.DataFrame, label: str, method: str) -> None:
    """Classes, numbers and labels of one table: both engines, and nodes that read the table, train the same model."""
    frame.assign(ill=frame.outcome == "ill").to_csv("patients.csv", index=False)
    inputs = "[age, pressure, sex, ward]" if label != "age" else "[pressure, sex, ward, smoker]"
    data = f"csv('{Path('patients.csv').absolute()}', label={label}, client=hospital, test=part, columns={inputs})"
    how: dict[str, Any] = {
        "data": data, "split": None, "clients": None, "model": "linear", "rounds": 2, "epochs": 1, "batch": 64,
        "cohort": 2, "precision": "fp64", "device": "cpu",
    }  # fmt: skip
    loop, vector = (holdfast.run(method, engine=engine, **how) for engine in ("loop", "vector"))
    there = {name: value for name, value in how.items() if value is not None} | {"method": method}
    nodes = on_grid(method, MemoryGrid(there, 3), nodes=3, **how)
    for found in (vector, nodes):
        torch.testing.assert_close(found.w.cpu(), loop.w.cpu(), rtol=1e-9, atol=1e-9)
        assert [(r.cohort, pytest.approx(r.test, rel=1e-8)) for r in found.history] == [
            (r.cohort, r.test) for r in loop.history
        ]
        assert (found.config.split, found.config.clients, found.facts.mean) == ("given", 3, loop.facts.mean)
        np.testing.assert_allclose(found.predict(frame), loop.predict(frame), rtol=1e-6)


def test_both_engines_agree(frame: pd.DataFrame) -> None:
    for engine in ("loop", "vector"):
        good("run", "scaffold", "--data", DATA, *SMALL, "--rounds", "3", "--precision", "fp64", "--engine", engine,
             "--out", engine)  # fmt: skip
    one, two = holdfast.load_run("loop"), holdfast.load_run("vector")
    torch.testing.assert_close(one.w, two.w, rtol=1e-9, atol=1e-9)
    assert one.facts.encoding == two.facts.encoding


def test_resuming_changes_nothing_and_a_changed_table_is_refused(frame: pd.DataFrame) -> None:
    good("run", "scaffold", "--data", DATA, *SMALL, "--rounds", "4", "--out", "whole")
    good("run", "scaffold", "--data", DATA, *SMALL, "--rounds", "2", "--out", "run")
    text = Path("patients.csv").read_text(encoding="utf-8")
    frame.assign(age=frame.age.where(frame.index != 5, None)).to_csv("patients.csv", index=False)
    assert refused("run", "--resume", "--rounds", "4", "--out", "run", "--quiet") == (
        "holdfast: the table of the run in run has changed since the run was started: restore it, or start over with "
        "--overwrite\n"
    )
    Path("patients.csv").write_text(text, encoding="utf-8")
    good("run", "--resume", "--rounds", "4", "--out", "run", "--quiet")
    wanted, found = ([line | {"seconds": 0} for line in lines(folder)] for folder in ("whole", "run"))
    assert found == wanted


def test_report_and_export_know_the_table(frame: pd.DataFrame) -> None:
    good("run", "fedavg", "--data", DATA, *SMALL, "--rounds", "2", "--out", "run")
    good("report", "run")
    assert "patients.csv" in Path("run/report.html").read_text(encoding="utf-8")
    result = holdfast.load_run("run")
    result.export("model")
    facts = json.loads(Path("model/model.json").read_text(encoding="utf-8"))
    names = [column["name"] for column in facts["encoding"]["columns"]]
    assert names == ["age", "sex", "smoker", "pressure", "ward"]
    card = Path("model/README.md").read_text(encoding="utf-8")
    columns = "age, sex=f, sex=m, smoker, pressure, pressure missing, ward=A, ward=B, new, ward missing"
    assert f"| columns | {columns}; encoded as `encoding` in `model.json` says |" in card
    program = torch.export.load("model/model.pt2").module()
    encoded = torch.from_numpy(result.encode(frame))
    wanted = torch.softmax(program(encoded), 1)
    np.testing.assert_allclose(wanted.detach(), result.predict_proba(frame), atol=1e-5)


class Embedded(nn.Module):
    """A network with an embedding for every column of categories."""

    def __init__(self) -> None:
        super().__init__()
        self.sex, self.ward = nn.Embedding(3, 2), nn.Embedding(4, 2)
        self.head = nn.Linear(4 + 4, 2)

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:
        found: Tensor = self.head(torch.cat([numbers, self.sex(codes[:, 0]), self.ward(codes[:, 1])], 1))
        return found


@pytest.mark.parametrize("engine", ["loop", "vector"])
def test_codes_reach_an_embedding(frame: pd.DataFrame, engine: str) -> None:
    data = holdfast.load(DATA.replace(")", ", categories=codes)"))
    federation = holdfast.federate(data, "given", 3)
    result = holdfast.run("fedavg", federation, Embedded, rounds=2, steps=2, engine=engine, out="run")
    again = holdfast.load_run("run", model=Embedded)
    np.testing.assert_array_equal(again.predict(frame), result.predict(frame))
    train = frame[frame.part == "train"]
    found = result.encode(frame)
    assert {name: array.shape for name, array in found.items()} == {"numbers": (240, 4), "codes": (240, 2)}
    age = (frame.age - train.age.mean()) / train.age.std(ddof=0)
    np.testing.assert_allclose(found["numbers"][:, 0], age, rtol=1e-4, atol=1e-5)
    ward = frame.ward.map({"A": 1, "B, new": 2}).fillna(frame.ward.isna() * 3)
    assert found["codes"][:, 1].tolist() == ward.tolist()


def test_numbers_to_predict(frame: pd.DataFrame) -> None:
    """The answers are those of the linear model by hand, in the unit of the data."""
    data = "csv('patients.csv', label=age, client=hospital, test=part, drop=[outcome, ward])"
    good("run", "fedavg", "--data", data, *SMALL, "--rounds", "3", "--out", "run")
    result = holdfast.load_run("run")
    train = frame[frame.part == "train"]
    x, own = (by_hand(rows, train)[:, 1:6] for rows in (frame, train))
    state = {name: t.double().numpy() for name, t in result.state_dict().items()}
    outputs = (x - own.mean(0)) / own.std(0) @ state["head.weight"].T + state["head.bias"]
    wanted = outputs * train.age.std(ddof=0) + train.age.mean()
    np.testing.assert_allclose(result.predict(frame), wanted, rtol=1e-4)
    head, *rows = list(csv.reader(io.StringIO(good("predict", "run", "--data", "patients.csv").out)))
    assert head == ["sample", "age"]
    np.testing.assert_allclose([float(row[1]) for row in rows], wanted[:, 0], rtol=1e-4)


def test_several_labels(frame: pd.DataFrame) -> None:
    frame.assign(ill=frame.outcome == "ill").drop(columns="outcome").to_csv("patients.csv", index=False)
    data = "csv('patients.csv', label=[ill, smoker], client=hospital, test=part)"
    good("run", "fedavg", "--data", data, *SMALL, "--rounds", "3", "--out", "run")
    result = holdfast.load_run("run")
    assert (result.task.name, result.classes) == ("multilabel", ("ill", "smoker"))
    head, *rows = list(csv.reader(io.StringIO(good("predict", "run", "--data", "patients.csv").out)))
    assert head == ["sample", "labels", "ill", "smoker"]
    chosen = result.predict(frame)
    assert [row[1] for row in rows] == [" ".join(np.array(result.classes)[row > 0]) for row in chosen]
    assert {row[1] for row in rows} > {"", "ill"}
