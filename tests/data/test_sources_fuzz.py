"""Random and mutated bytes for every reader: a refusal in one line, or a right answer; never a crash or an import."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.data_files import batch, idx, write_idx, write_images
from holdfast.core.errors import HoldfastError
from holdfast.data.formats.idx import read_idx
from holdfast.data.formats.images import decode_images
from holdfast.data.sources import load
from holdfast.data.sources.cifar import read_batch
from holdfast.data.sources.tiny_imagenet import annotated_images

BATCH = batch(np.arange(2 * 3072).astype(np.uint8).reshape(2, 3072), [3, 9])
FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))


T = TypeVar("T")


def answer(file: Path, read: Callable[[], T]) -> T | None:
    """What ``read`` gives, or None where it refuses with one line that names the file."""
    before = set(sys.modules)
    try:
        result, message = read(), ""
    except HoldfastError as error:
        result, message = None, str(error)
    assert set(sys.modules) == before
    assert result is not None or str(file) in message
    assert "\n" not in message
    return result


def mutations(content: bytes, snippets: tuple[bytes, ...] = ()) -> st.SearchStrategy[bytes]:
    """The content with a few stretches replaced, or cut short."""
    inserted = st.binary(max_size=8) | st.sampled_from(snippets or (b"",))
    edit = st.tuples(st.integers(0, len(content)), st.integers(0, 8), inserted)

    def apply(edits: list[tuple[int, int, bytes]], end: int) -> bytes:
        changed = content
        for at, gone, new in edits:
            changed = changed[:at] + new + changed[at + gone :]
        return changed[:end]

    return st.builds(apply, st.lists(edit, max_size=3), st.integers(0, 2 * len(content)))


# The first hundred bytes hold the structure; a long run of pixels would draw all the edits.
SMALL_IDX = idx(np.arange(12, dtype=np.uint8).reshape(3, 2, 2))


@FUZZ
@given(content=st.binary(max_size=64) | mutations(SMALL_IDX))
def test_fuzz_idx(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "images"
    file.write_bytes(content)
    array = answer(file, lambda: read_idx(file, 3))
    assert array is None or idx(array) == content


@FUZZ
@given(content=st.binary(max_size=64) | mutations(gzip.compress(SMALL_IDX, mtime=0)))
def test_fuzz_idx_in_gzip(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "images.gz"
    file.write_bytes(content)
    array = answer(file, lambda: read_idx(file, 3))
    assert array is None or idx(array) == gzip.decompress(content)


OPCODES = (
    b"cos\nsystem\n",
    b"cbuiltins\neval\n",
    b"R",
    b"b",
    b"\x81",
    b"(",
    b"t",
    b"r\xff\xff\xff\x7f",
    b"h\x01",
    b"0",
    b"2",
)


@FUZZ
@given(content=st.binary(max_size=64) | st.binary(max_size=64).map(b"\x80\x02}(".__add__) | mutations(BATCH, OPCODES))
def test_fuzz_pickles(tmp_path: Path, content: bytes) -> None:
    _fuzz_pickle(tmp_path / "data_batch_1", content)


@FUZZ
@given(content=mutations(BATCH[:360], OPCODES), start=st.integers(0, 360))
def test_fuzz_the_structure_of_pickles(tmp_path: Path, content: bytes, start: int) -> None:
    _fuzz_pickle(tmp_path / "data_batch_1", content[:start] + BATCH[start:])


def _fuzz_pickle(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    pair = answer(file, lambda: read_batch(file, "labels", 10))
    if pair is not None:
        x, y = pair
        assert (x.dtype, x.shape) == (np.uint8, (len(y), 3, 32, 32))
        assert ((y >= 0) & (y < 10)).all()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("pictures")
    kinds = ("png", "jpg", "bmp", "webp", "ppm")
    for kind in kinds:
        write_images(folder / kind, 1, (4, 4), kind)
    decode_images([folder / kind / f"0.{kind}" for kind in kinds])  # Pillow has loaded its readers now
    return {kind: (folder / kind / f"0.{kind}").read_bytes() for kind in kinds}


@FUZZ
@given(data=st.data())
def test_fuzz_images(tmp_path: Path, pictures: dict[str, bytes], data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(pictures)))
    file = tmp_path / f"image.{kind}"
    file.write_bytes(data.draw(st.binary(max_size=64) | mutations(pictures[kind])))
    images = answer(file, lambda: decode_images([file]))
    assert images is None or (images.dtype, images.shape[:2]) == (np.uint8, (1, 3))


@FUZZ
@given(content=st.binary(max_size=64) | mutations(b"0.JPEG\tn01\t0\t0\t62\t62\n1.JPEG\tn02\t0\t0\t62\t62\n"))
def test_fuzz_annotations(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "images").mkdir(exist_ok=True)
    for i in range(2):
        (tmp_path / "images" / f"{i}.JPEG").touch()
    file = tmp_path / "val_annotations.txt"
    file.write_bytes(content)
    found = answer(file, lambda: annotated_images(tmp_path, ["n01", "n02"]))
    for path, label in found or ():
        assert path.parent == tmp_path / "images"
        assert path.is_file()
        assert label in (0, 1)


@FUZZ
@given(name=st.sampled_from(["x.npy", "y.npy", "meta.json"]), data=st.data())
def test_fuzz_the_cache(tmp_path: Path, name: str, data: st.DataObject) -> None:
    if not (tmp_path / "MNIST").exists():
        write_idx(tmp_path / "MNIST" / "raw", ("train", "t10k"), 10, packed=False)
    load("mnist", tmp_path)
    file = next((tmp_path / "cache").glob(f"*/{name}"))
    content = file.read_bytes()
    head = content[:128] if name != "meta.json" else b""
    file.write_bytes(data.draw(st.binary(max_size=64) | mutations(head)) + content[len(head) :])
    loaded = load("mnist", tmp_path)
    fresh = read_idx(tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte", 3)
    assert np.array_equal(loaded.x[:, 0], fresh)
    assert loaded.y.tolist() == list(range(10)) * 2
