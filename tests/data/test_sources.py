"""The data sources: the published layouts, and the errors for what is absent."""

from __future__ import annotations

import gc
import io
import pickle
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image

import holdfast.data.sources
from helpers.data_files import RNG, batch, same, write_cifar10, write_idx, write_images
from helpers.exact_errors import raises_exactly
from helpers.places import SHARED
from holdfast.core.errors import HoldfastError
from holdfast.data.dataset import DataSet
from holdfast.data.fetch import fetch
from holdfast.data.formats.images import class_names
from holdfast.data.prepare import moments
from holdfast.data.sources import FileSource, data_folder, load, sources

MNIST_FILES = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))


# Digits, and what every source promises.


def test_digits_are_embedded_and_always_split_alike(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits

    data = load("digits", tmp_path)
    torch.manual_seed(1)
    assert same(data, load("digits", tmp_path / "elsewhere"))
    assert (len(data.y) + len(data.test_y), data.x.dtype, tuple(data.x.shape[1:])) == (1797, torch.float32, (1, 8, 8))
    assert data.x.min() == 0
    assert data.x.max() == 1
    original = np.sort(load_digits().images.reshape(1797, -1).sum(1))
    ours = torch.cat([data.x, data.test_x]).flatten(1).sum(1).double() * 16
    assert np.allclose(np.sort(ours.numpy()), original)
    per_class = torch.bincount(data.test_y).float() / (torch.bincount(data.test_y) + torch.bincount(data.y))
    assert ((per_class - 0.2).abs() < 0.01).all()


def test_every_named_source_is_known() -> None:
    published = {"mnist", "fashion-mnist", "emnist-letters", "cifar10", "cifar100", "cinic10", "tiny-imagenet"}
    assert set(sources()) >= published | {"digits", "folder"}
    for name, cls in sources().items():
        assert cls.name == name
        assert cls.__doc__


@pytest.mark.parametrize(
    ("name", "files", "folder"),
    [
        ("mnist", ", ".join(f"{kind}-ubyte.gz" for kind in MNIST_FILES), "MNIST/raw"),
        ("fashion-mnist", ", ".join(f"{kind}-ubyte.gz" for kind in MNIST_FILES), "FashionMNIST/raw"),
        (
            "emnist-letters",
            "emnist-letters-train-images-idx3-ubyte.gz, emnist-letters-train-labels-idx1-ubyte.gz, "
            "emnist-letters-test-images-idx3-ubyte.gz, emnist-letters-test-labels-idx1-ubyte.gz",
            "EMNIST/raw",
        ),
        (
            "cifar10",
            "data_batch_1, data_batch_2, data_batch_3, data_batch_4, data_batch_5, test_batch, batches.meta",
            "cifar-10-batches-py",
        ),
        ("cifar100", "train, test, meta", "cifar-100-python"),
        (
            "cinic10",
            "train/airplane, train/automobile, train/bird, train/cat, train/deer, train/dog, train/frog, train/horse "
            "and 12 more",
            "CINIC-10",
        ),
        ("tiny-imagenet", "train, val/images, val/val_annotations.txt", "tiny-imagenet-200"),
    ],
)
def test_an_absent_set_names_files_folder_and_command(tmp_path: Path, name: str, files: str, folder: str) -> None:
    with raises_exactly(
        f"{name}: {files} not found in {tmp_path / folder}; "
        f"download them with `holdfast data fetch {name}` or put them there"
    ):
        load(name, tmp_path)


def test_names_that_are_not_one_data_set() -> None:
    with pytest.raises(HoldfastError, match="did you mean mnist"):
        load("minst")
    with pytest.raises(HoldfastError, match="is a sum"):
        load("mnist+digits")
    with pytest.raises(HoldfastError, match="published, federated, pooled, off"):
        load("mnist(normalise=always)")
    with pytest.raises(HoldfastError, match="folder: path is missing"):
        load("folder")


def test_the_data_folder_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    write_cifar10(tmp_path / "cifar-10-batches-py")
    assert len(load("cifar10").y) == 20
    monkeypatch.delenv("HOLDFAST_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert data_folder() == tmp_path / "xdg" / "holdfast" / "data"


# The published formats.


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion-mnist", "FashionMNIST")])
def test_idx(tmp_path: Path, name: str, folder: str, packed: bool) -> None:
    written = write_idx(tmp_path / folder / "raw", ("train", "t10k"), 10, packed=packed)
    data = load(name, tmp_path)
    assert torch.equal(data.x[:, 0], written.x)
    assert torch.equal(data.test_x[:, 0], written.test_x)
    assert torch.equal(data.y, written.y)
    assert torch.equal(data.test_y, written.test_y)
    assert (data.x.dtype, data.y.dtype, len(data.classes), len(data.mean)) == (torch.uint8, torch.int64, 10, 1)


def test_emnist_letters_stand_upright_and_start_at_zero(tmp_path: Path) -> None:
    parts = ("emnist-letters-train", "emnist-letters-test")
    written = write_idx(tmp_path / "EMNIST" / "raw", parts, 26, first=1)
    data = load("emnist-letters", tmp_path)
    assert torch.equal(data.x[:, 0], written.x.transpose(1, 2))
    assert torch.equal(data.y, written.y - 1)
    assert data.classes[0] == "a"
    assert data.classes[25] == "z"


def test_cifar10_from_python_2_pickles(tmp_path: Path) -> None:
    x, y = write_cifar10(tmp_path / "cifar-10-batches-py")
    data = load("cifar10", tmp_path)
    pixels = torch.cat([data.x, data.test_x]).numpy()
    assert np.array_equal(pixels, x.reshape(-1, 3, 32, 32))
    assert np.array_equal(torch.cat([data.y, data.test_y]), y)
    assert (len(data.y), len(data.test_y)) == (20, 4)
    assert data.classes == tuple(f"class {i}" for i in range(10))


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_cifar100_written_again_by_python_3(tmp_path: Path, protocol: int) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    x = RNG.integers(0, 256, (3, 3072), dtype=np.uint8)
    content = {"fine_labels": [99, 0, 5], "coarse_labels": [1, 2, 3], "data": x, "filenames": ["a", "b", "c"]}
    for name in ("train", "test"):
        (folder / name).write_bytes(pickle.dumps(content, protocol))
    names = [f"n{i}" for i in range(100)]
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": names}, protocol))
    data = load("cifar100", tmp_path)
    assert np.array_equal(data.x.numpy().reshape(3, -1), x)
    assert data.y.tolist() == [99, 0, 5]
    assert data.classes[99] == "n99"


def test_cinic10(tmp_path: Path) -> None:
    for part in ("train", "valid", "test"):
        for name in sources()["cinic10"].classes:
            write_images(tmp_path / "CINIC-10" / part / name, 1, (32, 32))
    data = load("cinic10", tmp_path)
    assert data.x.shape == (10, 3, 32, 32)
    assert data.y.tolist() == data.test_y.tolist() == list(range(10))
    both = load("cinic10(valid=true)", tmp_path)
    assert both.x.shape == (20, 3, 32, 32)
    assert torch.equal(both.x[:10], data.x)


def test_tiny_imagenet_takes_val_as_test(tmp_path: Path) -> None:
    root = tmp_path / "tiny-imagenet-200"
    for name in ("n02", "n01"):
        write_images(root / "train" / name / "images", 2, (64, 64), "JPEG")
    write_images(root / "val" / "images", 3, (64, 64), "JPEG", mode="L")  # some of them are grey
    lines = ["2.JPEG\tn01\t0\t0\t9\t9", "0.JPEG\tn02\t0\t0\t9\t9", "1.JPEG\tn01\t0\t0\t9\t9"]
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    data = load("tiny-imagenet", tmp_path)
    assert data.classes == ("n01", "n02")
    assert data.y.tolist() == [0, 0, 1, 1]
    assert data.test_y.tolist() == [0, 1, 0]
    first = np.asarray(Image.open(root / "val" / "images" / "2.JPEG").convert("RGB")).transpose(2, 0, 1)
    assert np.array_equal(data.test_x[0], first)


LINE = ", line 1: expected an image, a tab and a class; delete it and download it again"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("9.JPEG\tn01", ": 9.JPEG is not in {images}; delete it and download it again"),
        ("0.JPEG\tn99", LINE),
        ("0.JPEG n01", LINE),
        ("../../0.JPEG\tn01", LINE),
        ("\tn01", LINE),
    ],
)
def test_tiny_imagenet_annotations_that_are_wrong(tmp_path: Path, line: str, problem: str) -> None:
    root = tmp_path / "tiny-imagenet-200"
    write_images(root / "train" / "n01" / "images", 1, (64, 64), "JPEG")
    write_images(root / "val" / "images", 1, (64, 64), "JPEG")
    (root / "val" / "val_annotations.txt").write_text(line + "\n")
    file = root / "val" / "val_annotations.txt"
    with raises_exactly(str(file) + problem.format(images=root / "val" / "images")):
        load("tiny-imagenet", tmp_path)


# Image folders.


def test_a_folder_with_train_and_test(tmp_path: Path) -> None:
    for part, n in (("train", 3), ("test", 2)):
        for name in ("dog", "cat"):
            write_images(tmp_path / part / name, n)
    (tmp_path / "train" / "cat" / "notes.txt").write_text("not an image")
    assert (load(f"folder('{tmp_path}')").mean, load(f"folder('{tmp_path}')").normalise) == ((), "federated")
    data = load(f"folder('{tmp_path}', normalise=pooled)")
    assert data.classes == ("cat", "dog")
    assert data.x.shape == (6, 3, 4, 5)
    assert data.y.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.test_y.tolist() == [0, 0, 1, 1]
    mean, std = moments(data.x)
    assert (data.mean, data.std) == (mean, std)


def test_a_folder_without_test_holds_out_a_fixed_share(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_images(tmp_path / name, 10, kind="jpg")
    data = load(f"folder('{tmp_path}', test=0.3)")
    assert torch.bincount(data.test_y).tolist() == [3, 3]
    assert torch.bincount(data.y).tolist() == [7, 7]
    grey = load(f"folder('{tmp_path}', size=8, grey=true)")
    assert grey.x.shape == (16, 1, 8, 8)


def test_folders_that_are_wrong(tmp_path: Path) -> None:
    none = tmp_path / "none"
    with raises_exactly(f"{none}: no such folder; expected images in {none}/train/<class>/ or {none}/<class>/"):
        load(f"folder('{tmp_path}/none')")
    with raises_exactly(f"{tmp_path}: no class folders in it; put images into {tmp_path}/<class>/"):
        load(f"folder('{tmp_path}')")
    write_images(tmp_path / "train" / "a", 2)
    write_images(tmp_path / "test" / "b", 1)
    with raises_exactly(f"{tmp_path}/test/b: no class of this name in the training folder; rename or delete it"):
        load(f"folder('{tmp_path}')")
    write_images(tmp_path / "train" / "b", 1, (6, 6))
    with raises_exactly(
        f"{tmp_path}/train/b/0.png: 6x6 pixels, expected 5x4 like the first image; scale all, as with size=64"
    ):
        load(f"folder('{tmp_path}')")
    assert load(f"folder('{tmp_path}', size=4)").x.shape == (3, 3, 4, 4)


# Against the real files.


def test_real_mnist() -> None:
    if not (SHARED / "MNIST").is_dir():
        pytest.skip(f"no MNIST in {SHARED}")
    data = load("mnist(normalise=computed)", SHARED)
    assert data.x.shape == (60000, 1, 28, 28)
    assert data.test_x.shape == (10000, 1, 28, 28)
    assert data.mean == pytest.approx((0.1307,), abs=5e-5)
    assert data.std == pytest.approx((0.3081,), abs=5e-5)
    assert data.y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]  # the published order


@pytest.fixture(scope="session")
def cifar_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every 250th image of the JPEG copy of CIFAR-10, as an image folder."""
    archive = SHARED / "cifar10-jpg.tar.xz"
    if not archive.is_file():
        pytest.skip(f"no {archive.name} in {SHARED}")
    root = tmp_path_factory.mktemp("cifar")
    with tarfile.open(archive) as tar:
        for i, member in enumerate(m for m in tar if m.isfile()):
            if i % 250 == 0:
                stream = tar.extractfile(member)
                assert stream is not None
                (root / member.name).parent.mkdir(parents=True, exist_ok=True)
                (root / member.name).write_bytes(stream.read())
    return root


def test_real_images_as_a_folder_and_as_batches_agree(cifar_images: Path, tmp_path: Path) -> None:
    data = load(f"folder('{cifar_images}', normalise=pooled)")
    assert data.x.shape == (200, 3, 32, 32)
    assert torch.bincount(data.test_y).tolist() == [4] * 10
    assert data.classes[0] == "airplane"
    assert data.mean == pytest.approx((0.4914, 0.4822, 0.4465), abs=0.03)  # of a sample of CIFAR-10
    folder = tmp_path / "cifar-10-batches-py"
    write_cifar10(folder)
    flat = data.x.numpy().reshape(200, -1)
    for b in range(5):
        rows = slice(40 * b, 40 * b + 40)
        (folder / f"data_batch_{b + 1}").write_bytes(batch(flat[rows], data.y[rows].tolist()))
    again = load("cifar10", tmp_path)
    assert torch.equal(again.x, data.x)
    assert torch.equal(again.y, data.y)


def test_pil_reads_what_we_read(cifar_images: Path) -> None:
    file = next((cifar_images / "test" / "ship").iterdir())
    pixels = np.asarray(Image.open(io.BytesIO(file.read_bytes())).convert("RGB")).transpose(2, 0, 1)
    data = load(f"folder('{cifar_images}')")
    assert any(np.array_equal(image, pixels) for image in data.test_x[data.test_y == 8])


# Adding a data set.


@pytest.fixture
def _forget_classes() -> Iterator[None]:
    """Classes that a test defines are not known to the tests after it."""
    yield
    gc.collect()


@pytest.mark.usefixtures("_forget_classes")
def test_a_new_data_set_is_one_new_file(tmp_path: Path) -> None:
    """Every file of the folder that is no helper holds a data set; a user may write one elsewhere."""

    @dataclass(frozen=True)
    class Numbers(FileSource):
        name: ClassVar[str] = "test-numbers"

        def place(self, data_dir: Path) -> Path:
            return data_dir / "numbers"

        def files(self, data_dir: Path) -> list[Path]:
            return [self.place(data_dir) / "numbers.npy"]

        def decode(self, files: list[Path]) -> DataSet:
            x = torch.from_numpy(np.load(files[0]))
            y = torch.arange(len(x)) % 2
            return DataSet(self.name, x, y, x, y, ("even", "odd"))

    with raises_exactly(f"test-numbers is not published for download; put numbers.npy into {tmp_path}/numbers"):
        fetch("test-numbers", tmp_path)
    (tmp_path / "numbers").mkdir()
    np.save(tmp_path / "numbers" / "numbers.npy", np.eye(4, dtype=np.float32))
    assert load("test-numbers", tmp_path).mean == (0.25, 0.25, 0.25, 0.25)
    assert load("test-numbers(normalise=off)", tmp_path).mean == ()
    folder = Path(holdfast.data.sources.__file__).parent
    files = {file.stem for file in folder.glob("*.py") if not file.stem.startswith("_")}
    homes = {cls.__module__ for cls in sources().values() if cls.__module__.startswith("holdfast.")}
    assert homes == {f"holdfast.data.sources.{file}" for file in files}


def test_class_names_that_are_not_utf8_can_be_printed():
    assert class_names(["cat", "d\udcffg"]) == ["cat", "d\\xffg"]
