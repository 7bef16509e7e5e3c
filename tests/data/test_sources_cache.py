"""What is done once with a decoded data set: hold-out, statistics, the cache; and the listing."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.data_files import RNG, idx, same, write_cifar10, write_idx
from holdfast.data import cache
from holdfast.data.prepare import hold_out_test, moments
from holdfast.data.sources import SourceStatus, listing, load


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))


# Hold-out and statistics.


def test_hold_out_is_stratified_and_partitions() -> None:
    y = torch.tensor([0] * 50 + [1] * 10 + [2] * 2 + [3])
    train, test = hold_out_test(y, 0.2)
    assert torch.equal(torch.cat([train, test]).sort().values, torch.arange(63))
    assert torch.bincount(y[test], minlength=4).tolist() == [10, 2, 1, 0]


@pytest.mark.parametrize("shape", [(5000, 3, 2, 2), (4999, 2)])
def test_moments_against_numpy(shape: tuple[int, ...]) -> None:
    axes = (0, *range(2, len(shape)))
    floats = RNG.normal(1000, 0.1, shape).astype(np.float32)  # a large mean must not cancel the deviation
    for array, scale in ((floats, 1.0), (RNG.integers(0, 256, shape, dtype=np.uint8), 255.0)):
        mean, std = moments(torch.from_numpy(array))
        exact = array.astype(np.float64) / scale
        assert np.allclose(mean, exact.mean(axes), rtol=1e-12)
        assert np.allclose(std, exact.std(axes), rtol=1e-9)
    assert moments(torch.full((3, 1, 2, 2), 7, dtype=torch.uint8))[1] == (1.0,)


def test_normalisation_is_published_computed_or_off(tmp_path: Path) -> None:
    write_idx(tmp_path / "MNIST" / "raw", ("train", "t10k"), 10)
    assert load("mnist", tmp_path).mean == (0.1307,)
    data = load("mnist(normalise=computed)", tmp_path)
    assert (data.mean, data.std) == moments(data.x)
    assert load("mnist(normalise=off)", tmp_path).mean == ()


# The cache.


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    write_idx(tmp_path / "MNIST" / "raw", ("train", "t10k"), 10, packed=False)
    return tmp_path


def test_the_second_load_decodes_nothing(mnist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load("mnist", mnist)
    monkeypatch.setattr("holdfast.data.sources.mnist.read_idx", None)
    second = load("mnist", mnist)
    assert same(first, second)
    assert first.classes == second.classes
    second.x[0] = 0  # writing to the tensor leaves the file alone
    assert same(first, load("mnist", mnist))


def test_a_changed_source_file_is_decoded_anew_and_the_old_entry_goes(mnist: Path) -> None:
    load("mnist", mnist)
    file = mnist / "MNIST" / "raw" / "t10k-labels-idx1-ubyte"
    labels = np.full(10, 3, np.uint8)
    file.write_bytes(idx(labels))  # the same size
    os.utime(file, ns=(1, 1))
    assert load("mnist", mnist).test_y.tolist() == labels.tolist()
    assert len(list(cache.cache_dir().iterdir())) == 1


@pytest.mark.parametrize("name", ["meta.json", "x.npy", "test_y.npy"])
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "longer", "garbage", "bit"])
def test_a_damaged_entry_is_rebuilt(mnist: Path, name: str, damage: str) -> None:
    first = load("mnist", mnist)
    file = next(cache.cache_dir().glob(f"*/{name}"))
    content = file.read_bytes()
    damaged = {"empty": b"", "cut": content[:-1], "longer": content + b"!", "garbage": b"\x80" + content[1:]}
    damaged["bit"] = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]  # in the data, or in a checksum
    file.unlink()
    if damage != "gone":
        file.write_bytes(damaged[damage])
    assert same(first, load("mnist", mnist))
    assert next(cache.cache_dir().glob(f"*/{name}")).read_bytes() == content


def test_a_cache_that_cannot_be_written_is_no_error(mnist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (mnist / "a file").write_text("")
    monkeypatch.setenv("HOLDFAST_CACHE", str(mnist / "a file" / "cache"))
    assert len(load("mnist", mnist).y) == 20


# The listing.


def test_listing_tells_what_is_there(mnist: Path) -> None:
    folder = mnist / "cifar-10-batches-py"
    write_cifar10(folder)
    (folder / "test_batch").write_bytes(b"junk")
    (mnist / "cifar-100-python").mkdir()
    rows = {row.name: row for row in listing(mnist)}
    assert rows["mnist"] == SourceStatus("mnist", True, mnist / "MNIST" / "raw", 20, 10)
    assert rows["cifar100"] == SourceStatus(
        "cifar100", False, mnist / "cifar-100-python", missing=("train", "test", "meta")
    )
    assert rows["cifar10"].present
    assert "test_batch" in rows["cifar10"].problem
    assert rows["digits"].train + rows["digits"].test == 1797
    assert "folder" not in rows
