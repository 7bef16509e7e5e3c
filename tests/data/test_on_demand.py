"""Clients made by a function or read from files: what is checked, and by what they are normalised."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import holdfast
from helpers.clients_on_demand import CLASSES, FEATURES, SCALE, held_out, make, on_demand
from helpers.commands import call
from helpers.exact_errors import raises_exactly
from holdfast.data.client_maker import SOME

X, Y = make(0)


def but(number: int, x: Any = X, y: Any = Y) -> Any:
    """Make clients as ever, but one of them from these arrays."""
    return lambda i: (x, y) if i == number else make(i)


# -- bad clients -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("made", "message"),
    [
        (but(1, X[:0], Y[:0]), "client 1 has no samples: give every client at least one"),
        (but(1, X, Y[:2]), "client 1 has 3 inputs and 2 labels: give one per sample"),
        (
            but(1, X[:, :5]),
            "x of client 1 has samples of torch.float32 [5] and the test data of torch.float32 [6]; give all the same "
            "type and shape",
        ),
        (but(1, X * np.nan), "x of client 1 has 18 NaN or infinite numbers, first in sample 0; clean it"),
        (but(1, X, Y + 3), "client 1 has the label 5, expected 0 to 2: name all classes with classes="),
        (but(1, X, ["a", "d", "b"]), "unknown class 'd' in y of client 1; known: a, b, c"),
        (
            lambda i: X if i == 1 else make(i),
            "client 1 is of type ndarray, expected a pair: return (x, y) from the function",
        ),
        (
            lambda i: (X, Y, Y) if i == 1 else make(i),
            "client 1 is 3 values, expected a pair: return (x, y) from the function",
        ),
    ],
)
def test_a_bad_client_is_named(made, message):
    maker = on_demand(5, made).on_demand
    assert maker is not None
    with raises_exactly(message):
        maker.cohort(np.array([0, 1, 2]))


def test_what_a_function_lacks_is_named():
    with raises_exactly("clients made on demand need a common test set: give test=(x, y)"):
        holdfast.from_clients(make, clients=5)
    with raises_exactly("clients must be a whole number of at least 1, not None: set it, such as clients=8"):
        holdfast.from_clients(make, held_out())
    with raises_exactly("clients must be a whole number of at least 1, not 0: set it, such as clients=8"):
        holdfast.from_clients(make, held_out(), clients=0)
    with raises_exactly("threads must be a whole number of at least 1, not 0.5: set it, such as threads=8"):
        holdfast.from_clients(make, held_out(), clients=3, threads=0.5)
    with raises_exactly("there are 2 clients, not 3: leave out clients"):
        holdfast.from_clients([make(0), make(1)], held_out(), clients=3)
    with raises_exactly(
        "normalise=pooled needs the samples of every client, but this data makes clients on demand: give mean and "
        "std, or leave it out"
    ):
        holdfast.from_clients(make, held_out(), clients=3, normalise="pooled")


def test_random_numbers_that_do_not_come_from_the_client_are_noticed_at_once():
    with raises_exactly(
        "client 0 has other samples than before: make it from its number alone, with random numbers from "
        "np.random.default_rng(0) and the like"
    ):
        on_demand(5, lambda i: (np.random.default_rng().normal(size=(4, FEATURES)), [0, 1, 2, 0]))


# -- what fits a federation ------------------------------------------------------------------------------------------
def test_what_needs_every_client_is_refused():
    data = on_demand(7)
    needs = "needs the samples of every client, but this data makes clients on demand"
    with raises_exactly("the clients of clients are made on demand, not dealt by iid: use the split given"):
        holdfast.federate(data, "iid", 7)
    with raises_exactly("clients is 8, but clients brings 7, made on demand: leave out clients"):
        holdfast.federate(data, "given", 8)
    with raises_exactly(f"public data {needs}: leave it out"):
        holdfast.federate(data, "given", 7, public=0.1)
    with raises_exactly(f"validation {needs}: leave it out"):
        holdfast.federate(data, "given", 7, validation=0.1)
    with raises_exactly(f"a federation of several machines {needs}: let every node bring its own data"):
        holdfast.federate(data, "given", 7).only([1])
    with raises_exactly(
        "clients is data for classification, not for regression: leave out task, or prepare its targets"
    ):
        holdfast.federate(on_demand(7, classes=["1", "2", "3"]), "given", 7, task="regression")


def test_a_federation_on_demand_knows_its_size_and_its_first_client():
    federation = holdfast.federate(on_demand(10**7))
    assert (federation.split, federation.clients) == ("given", 10**7)
    assert (federation.classes, federation.shape) == (CLASSES, (FEATURES,))
    assert federation.occupied == range(10**7)
    assert np.array_equal(federation.data.x, X)
    assert repr(federation.data) == (
        "DataSet(clients: 10000000 clients made on demand and 43 test samples of shape (6,), 3 classes)"
    )


# -- normalisation ---------------------------------------------------------------------------------------------------
def test_inputs_are_normalised_by_all_clients_if_they_are_few():
    federation = holdfast.federate(holdfast.from_clients(make, held_out(), clients=30))
    data = federation.data
    assert federation.normalisation == "federated"
    x = np.concatenate([make(i)[0] for i in range(30)]).astype(np.float64)
    np.testing.assert_allclose(data.mean, x.mean(0), rtol=1e-9)
    np.testing.assert_allclose(data.std, x.std(0), rtol=1e-9)


def test_inputs_are_normalised_by_a_hundred_clients_if_they_are_many():
    made: list[int] = []

    def counted(i: int) -> Any:
        made.append(i)
        return make(i)

    data = holdfast.federate(holdfast.from_clients(counted, held_out(), clients=10**7)).data
    chosen = made[2:]
    assert made[:2] == [0, 0]
    assert (len(chosen), len(set(chosen)), SOME) == (100, 100, 100)
    assert 2 * 10**6 < np.median(chosen) < 8 * 10**6, "from anywhere, not the first ones"
    x = np.concatenate([make(i)[0] for i in chosen]).astype(np.float64)
    np.testing.assert_allclose(data.mean, x.mean(0), rtol=1e-9)
    np.testing.assert_allclose(data.std, x.std(0), rtol=1e-9)
    again = holdfast.federate(holdfast.from_clients(make, held_out(), clients=10**7), seed=1)
    assert again.data.mean == data.mean


@pytest.mark.parametrize("off", [False, "off"])
def test_inputs_can_be_left_as_they_are_or_get_a_given_scale(off):
    raw = holdfast.federate(holdfast.from_clients(make, held_out(), clients=9, normalise=off))
    assert (raw.normalisation, raw.data.mean) == ("off", ())
    known = holdfast.federate(on_demand(9))
    assert known.normalisation == "published"
    assert (known.data.mean, known.data.std) == (tuple(SCALE["mean"]), tuple(SCALE["std"]))


# -- threads and processes -------------------------------------------------------------------------------------------
def test_several_threads_make_a_cohort_in_order():
    together = threading.Barrier(3, timeout=20)

    def patient(i: int) -> Any:
        if i >= 10:
            together.wait()  # passes only if three clients are made at the same time
        return make(i)

    maker = on_demand(100, patient, threads=3).on_demand
    assert maker is not None
    ids = np.arange(10, 22)
    x, y, deal = maker.cohort(ids)
    assert np.array_equal(x, np.concatenate([make(i)[0] for i in ids]))
    assert np.array_equal(y, np.concatenate([make(i)[1] for i in ids]))
    assert all(np.array_equal(y[deal.client(i)], make(i)[1]) for i in ids)
    assert deal.sizes_of(np.array([21, 12])).tolist() == [len(make(21)[1]), len(make(12)[1])]
    with pytest.raises(KeyError):
        deal.client(9)


def test_clients_of_a_function_of_a_module_reach_other_processes():
    data = pickle.loads(pickle.dumps(on_demand(9)))
    x, y = data.on_demand.client(3)
    assert np.array_equal(x, make(3)[0])
    assert np.array_equal(y, make(3)[1])


# -- a file for each client ------------------------------------------------------------------------------------------
def write(folder: Path, ending: str, clients: int = 4) -> list[Path]:
    files = [folder / f"{i}{ending}" for i in range(clients)]
    for i, file in enumerate(files):
        x, y = make(i)
        if ending == ".npz":
            np.savez(file, x=x, y=y)
        elif ending == ".pt":
            pair = torch.from_numpy(x), torch.from_numpy(y)
            torch.save(pair if i % 2 else {"x": pair[0], "y": pair[1]}, file)
        else:
            rows = [[*row[:2].tolist(), int(label), *row[2:].tolist()] for row, label in zip(x, y, strict=True)]
            file.write_text("\n".join(["a,b,y,c,d,e,f", *(",".join(map(repr, row)) for row in rows)]) + "\n")
    return files


@pytest.mark.parametrize("ending", [".npz", ".pt", ".csv"])
def test_clients_are_read_from_files(tmp_path: Path, ending: str):
    files = write(tmp_path, ending)
    by_name = holdfast.from_clients(holdfast.client_files(str(tmp_path / f"{{client}}{ending}")), held_out(), clients=4)
    by_list = holdfast.from_clients(holdfast.client_files(files), held_out())
    for data in (by_name, by_list):
        assert data.on_demand is not None
        assert data.on_demand.clients == 4
        for i in range(4):
            x, y = data.on_demand.client(i)
            assert np.array_equal(x, make(i)[0])
            assert np.array_equal(y, make(i)[1])


def test_text_labels_and_other_names_are_read(tmp_path: Path):
    (tmp_path / "a.csv").write_text("x,kind\n1,cat\n2,dog\n")
    x, y = holdfast.client_files([tmp_path / "a.csv"], label="kind")(0)
    assert (x.tolist(), y) == ([[1.0], [2.0]], ["cat", "dog"])


def test_bad_files_are_named(tmp_path: Path):
    np.savez(tmp_path / "0.npz", a=X, b=Y)
    (tmp_path / "1.npz").write_bytes(b"nothing")
    (tmp_path / "2.csv").write_text("a,b\n1,2\n")
    (tmp_path / "3.csv").write_text("a,y\noops,2\n")
    (tmp_path / "4.csv").write_text("a,y\n1,2\n1\n")
    (tmp_path / "5.pt").write_bytes(b"nothing")
    (tmp_path / "6.txt").write_text("")
    (tmp_path / "7.csv").write_text("")
    folder = tmp_path
    expected = {
        "0.npz": f"{folder}/0.npz has a, b, expected x and y: save the client's inputs and labels as these",
        "1.npz": f"{folder}/1.npz holds no arrays of numbers: save them with numpy.save or numpy.savez",
        "2.csv": f"{folder}/2.csv has the columns a, b, but no y: name the labels with label=",
        "3.csv": f"{folder}/3.csv: could not convert string to float: 'oops'; give numbers beside the labels",
        "4.csv": f"{folder}/4.csv has lines of different lengths: give a value for each of 2 columns",
        "5.pt": f"{folder}/5.pt holds no tensors: save them with torch.save((x, y), file)",
        "6.txt": f"{folder}/6.txt is not a file of samples that Holdfast reads: use .npz, .pt, .csv",
        "7.csv": f"{folder}/7.csv is empty: give a line of names and a line per sample",
        "8.npz": f"{folder}/8.npz does not exist: check the files of the clients",
    }
    for name, message in expected.items():
        with raises_exactly(message):
            holdfast.client_files([folder / name])(0)
    with raises_exactly("all.npz is the same file for every client: write {client} where the number goes"):
        holdfast.client_files("all.npz")
    with raises_exactly(f"client 0: {expected['8.npz']}"):
        holdfast.from_clients(holdfast.client_files([folder / "8.npz"]), held_out())


# -- the command line ------------------------------------------------------------------------------------------------
FILE = """
import numpy as np
import holdfast

def make(i):
    draw = np.random.default_rng(i)
    return draw.normal(size=(5, 4)), draw.integers(0, 2, 5)

def load():
    return holdfast.from_clients(make, make(-1 + 2**32), clients=1000, classes=["no", "yes"])
"""


def test_a_function_in_a_file_brings_them_to_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(FILE)
    options = ["--data", "own.py:load"]
    done = call("run", "fedavg", *options, "--rounds", "2", "--cohort", "5", "--out", "r", "--model", "linear")
    assert done.code == 0, done.err
    result = holdfast.load_run("r")
    assert (len(result.history), result.config.split, result.config.clients) == (2, "given", 1000)
    refused = call("split", *options)
    reason = "holdfast split needs the samples of every client, but this data makes clients on demand"
    assert (refused.code, " ".join(refused.err.split())) == (2, f"holdfast: {reason}: there is no picture of them")
