"""``holdfast predict``: samples from files, classes and probabilities as CSV."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import holdfast
from helpers.commands import good, refused

pytestmark = pytest.mark.usefixtures("elsewhere")
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)
ROWS = RNG.normal(loc=9, size=(60, 3))


@pytest.fixture
def pictures() -> holdfast.Result:
    """A run on colour images."""
    data = holdfast.from_arrays(PIXELS, ["ape", "bee"] * 15)
    federation = holdfast.federate(data, split="iid", clients=2)
    return holdfast.run("fedavg", federation, "linear", out="run", rounds=1, steps=1)


@pytest.fixture
def rows() -> holdfast.Result:
    """A run on rows of three numbers."""
    data = holdfast.from_arrays(ROWS, ["a,b", "c"] * 30)
    federation = holdfast.federate(data, split="iid", clients=2)
    return holdfast.run("fedavg", federation, "linear", out="run", rounds=1, steps=1)


def agrees(text: str, result: holdfast.Result, x: np.ndarray, names: list[str]) -> None:
    head, *lines = list(csv.reader(io.StringIO(text)))
    assert head == ["sample", "class", *result.classes]
    assert [line[0] for line in lines] == names
    assert [line[1] for line in lines] == [result.classes[i] for i in result.predict(x)]
    found = np.array([[float(cell) for cell in line[2:]] for line in lines])
    np.testing.assert_allclose(found, result.predict_proba(x), atol=1e-6)


@pytest.mark.parametrize("name", ["x.npy", "one.npz", "named.npz"])
def test_arrays(pictures: holdfast.Result, name: str):
    np.save("x.npy", PIXELS)
    np.savez("one.npz", PIXELS)
    np.savez("named.npz", y=np.zeros(30), x=PIXELS)
    agrees(good("predict", "run", "--data", name).out, pictures, PIXELS, [str(i) for i in range(30)])


@pytest.mark.parametrize("head", ["", "speed,height,width\n"])
def test_tables(rows: holdfast.Result, head: str):
    lines = "".join(",".join(map(repr, map(float, row))) + "\n" for row in ROWS)
    Path("x.csv").write_text(head + lines)
    agrees(good("predict", "run", "--data", "x.csv").out, rows, ROWS, [str(i) for i in range(60)])


def test_images(pictures: holdfast.Result):
    Path("new").mkdir()
    for i in range(3):
        Image.fromarray(PIXELS[i]).save(f"new/{i}.png")
    agrees(good("predict", "run", "--data", "new").out, pictures, PIXELS[:3], ["0.png", "1.png", "2.png"])
    agrees(good("predict", "run", "--data", "new/1.png").out, pictures, PIXELS[1:2], ["1.png"])


def test_a_file_for_the_answer(pictures: holdfast.Result):
    np.save("x.npy", PIXELS[:1])
    said = good("predict", "run", "--data", "x.npy", "--out", "new/classes.csv")
    assert said.out == ""
    assert said.err == "the classes of 1 sample are in new/classes.csv\n"
    agrees(Path("new/classes.csv").read_text(), pictures, PIXELS[:1], ["0"])


KINDS = "a .npy, .npz, .csv or .txt file, an image, or a folder of images"


def test_files_that_are_no_samples(pictures: holdfast.Result):
    Path("x.doc").write_text("1")
    Path("x.txt").write_text("to be")
    Path("empty.txt").write_text("\n\n")
    Path("bad.npy").write_text("1")
    Path("bad.npz").write_text("1")
    np.save("objects.npy", np.array([{}], object), allow_pickle=True)
    np.save("wide.npy", PIXELS[:, :, :7])
    np.savez("many.npz", a=PIXELS, b=PIXELS)
    np.savez("none.npz")
    Path("empty").mkdir()
    Image.fromarray(PIXELS[0, :5]).save("small.png")
    arrays = "holds no arrays of numbers: save them with numpy.save or numpy.savez"
    like = "give samples like those of the training data"
    images = "expected [n, 3, 8, 8] or [n, 8, 8, 3]"
    for name, message in {
        "x.doc": f"x.doc is not a file of samples that Holdfast reads: give {KINDS}",
        "x.txt": "x has texts, but the model was not trained on texts; give numbers like its training data",
        "empty.txt": "empty.txt has no texts: give one per line",
        "none.npy": "none.npy does not exist: check --data",
        "none.png": "none.png does not exist: check --data",
        "bad.npy": f"bad.npy {arrays}",
        "bad.npz": f"bad.npz {arrays}",
        "objects.npy": f"objects.npy {arrays}",
        "none.npz": "none.npz has no arrays: save the samples in it, as np.savez(file, x=samples)",
        "wide.npy": f"x has shape [30, 8, 7, 3], {images}: {like}",
        "many.npz": "x has the keys a, b, but the model takes one array: give that alone, or call it x in a .npz file",
        "empty": "empty has no images: put PNG or JPEG files into it",
        "small.png": f"x has shape [1, 3, 5, 8], {images}: {like}",
    }.items():
        assert refused("predict", "run", "--data", name) == f"holdfast: {message}\n"


def test_tables_that_are_not_numbers(rows: holdfast.Result):
    Path("word.csv").write_text("1,2,3\n1,2,three\n")
    Path("ragged.csv").write_text("1,2,3\n1,2\n")
    Path("narrow.csv").write_text("1,2\n")
    Path("empty.csv").write_text("a,b,c\n")
    Path("bytes.csv").write_bytes(b"1,2,3\n\xff\n")
    Path("nan.csv").write_text("1,2,nan\n")
    Path("new").mkdir()
    for name, message in {
        "word.csv": "word.csv: sample 1 has 'three' where a number is expected: correct it",
        "ragged.csv": "ragged.csv: sample 1 has 2 columns and sample 0 has 3: give all the same number",
        "narrow.csv": "x has shape [1, 2], expected [n, 3]: give samples like those of the training data",
        "empty.csv": "empty.csv has no rows of numbers: give one per sample",
        "bytes.csv": "bytes.csv is not a CSV file in UTF-8: convert it",
        "nan.csv": "x has NaN or infinite numbers, first in sample 0; clean it",
        "new": "new holds images, but the model takes samples of shape [3]: give them as .npy, .npz or .csv",
    }.items():
        assert refused("predict", "run", "--data", name) == f"holdfast: {message}\n"


def test_no_run_and_no_data(rows: holdfast.Result):
    assert refused("predict", "nowhere", "--data", "x.npy") == "holdfast: nowhere holds no run: check the folder\n"
    assert refused("predict", "run") == "holdfast: missing option '--data'; see: holdfast predict --help\n"
