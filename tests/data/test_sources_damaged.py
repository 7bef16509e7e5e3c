"""Damaged and hostile files: one line that names the file, or a right answer; never a crash, a call or an import."""

from __future__ import annotations

import gzip
import os
import pickle
import re
import shutil
import struct
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from helpers.data_files import RNG, batch, idx, number, python2_dict, word, write_cifar10, write_idx, write_images
from helpers.places import SHARED
from holdfast.core.errors import HoldfastError
from holdfast.data.formats.idx import read_idx
from holdfast.data.formats.images import decode_images
from holdfast.data.formats.pickles import read_pickle
from holdfast.data.sources import load
from holdfast.data.sources.cifar import read_batch

MNIST = SHARED / "MNIST" / "raw"
IMAGES = idx(np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28))
BATCH = batch(np.arange(2 * 3072).astype(np.uint8).reshape(2, 3072), [3, 9])


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))


AGAIN = "delete it and download it again"
GZIP = rf"not a complete gzip or IDX file \(.+\); {AGAIN}"
CONTENT = rf"its '(?:data|labels)' must be (?:bytes|a list) .+, not .+; {AGAIN}"
PICKLE = rf"refused, since it contains .+, which no CIFAR file does; {AGAIN}|not a complete pickle \(\w+\); {AGAIN}"


@contextmanager
def one_line(file: Path, problem: str) -> Iterator[None]:
    """The block must fail with one line: the file, and a problem that this pattern describes as a whole."""
    with pytest.raises(HoldfastError) as caught:
        yield
    message = str(caught.value)
    assert re.fullmatch(f"{re.escape(str(file))}: (?:{problem})", message), message


@contextmanager
def little_memory(most: int = 8 << 20) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


# IDX.


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "it starts with nothing, expected 00 00 08 03"),
        (b"\x00\x00\x08\x01" + IMAGES[4:], "it starts with 00 00 08 01, expected 00 00 08 03"),
        (b"\x00\x00\x0d\x03" + IMAGES[4:], "it starts with 00 00 0d 03, expected 00 00 08 03"),
        (IMAGES[:10], "truncated in its header"),
        (IMAGES[:-1], "truncated, expected 1568 bytes after the header"),
        (IMAGES + b"\x00", "longer than its header says, expected 1568 bytes after the header"),
        (
            b"\x00\x00\x08\x03" + struct.pack(">3I", 10**4, 10**4, 10**4),
            "its header claims 1000000000000 bytes, expected 1 to 2147483648",
        ),
        (
            b"\x00\x00\x08\x03" + struct.pack(">3I", 0, 28, 28),
            "its header claims 0 bytes, expected 1 to 2147483648",
        ),
        (
            b"\x00\x00\x08\x03" + struct.pack(">3I", 2**20, 28, 28),
            "truncated, its header claims 822083584 bytes",
        ),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_that_are_wrong(tmp_path: Path, content: bytes, problem: str, packed: bool) -> None:
    file = tmp_path / ("images.gz" if packed else "images")
    file.write_bytes(gzip.compress(content) if packed else content)
    with one_line(file, f"{problem}; {AGAIN}"), little_memory():
        read_idx(file, 3)


def test_a_gzip_bomb_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "images.gz"
    file.write_bytes(gzip.compress(IMAGES + bytes(64 << 20)))
    with one_line(file, f"longer than its header says, expected 1568 bytes after the header; {AGAIN}"), little_memory():
        read_idx(file, 3)


@pytest.mark.parametrize("where", [0, 1, 3, -1, -5, 40])
def test_gzip_damage(tmp_path: Path, where: int) -> None:
    content = bytearray(gzip.compress(IMAGES, mtime=0))
    content[where] ^= 0xFF
    file = tmp_path / "images.gz"
    file.write_bytes(content)
    with one_line(file, GZIP):
        read_idx(file, 3)


@pytest.mark.parametrize("part", ["images-idx3", "labels-idx1"])
def test_damaged_copies_of_the_real_files(tmp_path: Path, part: str) -> None:
    if not MNIST.is_dir():
        pytest.skip(f"no MNIST in {MNIST}")
    folder = tmp_path / "MNIST" / "raw"
    shutil.copytree(MNIST, folder)
    os.chmod(folder, 0o755)
    file = folder / f"t10k-{part}-ubyte.gz"
    content = file.read_bytes()
    os.chmod(file, 0o644)
    file.write_bytes(content[: len(content) // 2])
    with one_line(file, GZIP):
        load("mnist", tmp_path)
    file.write_bytes(content[:2000] + bytes([content[2000] ^ 1]) + content[2001:])
    length = r"(?:truncated|longer than its header says), expected \d+ bytes after the header"
    with one_line(file, f"{GZIP}|{length}; {AGAIN}"):
        load("mnist", tmp_path)
    file.write_bytes((MNIST / f"train-{part}-ubyte.gz").read_bytes())
    counts = "60000 labels for the 10000 images" if part.startswith("labels") else "10000 labels for the 60000 images"
    with one_line(
        folder / "t10k-labels-idx1-ubyte.gz",
        rf"{counts} of t10k-images-idx3-ubyte\.gz; delete both files and download them again",
    ):
        load("mnist", tmp_path)
    file.write_bytes(content)
    assert len(load("mnist", tmp_path).test_y) == 10000


def test_idx_values_that_are_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "MNIST" / "raw"
    write_idx(folder, ("train", "t10k"), 10, packed=False)
    labels = folder / "train-labels-idx1-ubyte"
    labels.write_bytes(idx(np.full(20, 10, np.uint8)))
    with one_line(labels, f"labels 10 to 10, expected 0 to 9; {AGAIN}"):
        load("mnist", tmp_path)
    images = folder / "train-images-idx3-ubyte"
    images.write_bytes(idx(np.zeros((20, 8, 8), np.uint8)))
    with one_line(images, f"images of 8x8 pixels, expected 28x28; {AGAIN}"):
        load("mnist", tmp_path)


# Pickles.


class _Call:
    def __init__(self, function: object, *args: object) -> None:
        self.plan = (function, args)

    def __reduce__(self) -> object:
        return self.plan


def hostile(marker: Path) -> dict[str, bytes]:
    """Pickles that would write ``marker`` or reach for more than plain data."""
    touch = f"open({str(marker)!r}, 'w').close()"
    dtype = b"cnumpy\ndtype\nU\x02%sK\x00K\x01\x87R(K\x03U\x01|NNN" + number(-1) + number(-1) + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01%s%s\x89%stb"
    cases = {f"system {p}": pickle.dumps({"data": _Call(os.system, f"touch {marker}")}, p) for p in range(6)}
    cases |= {f"exec {p}": pickle.dumps({"data": _Call(exec, touch)}, p) for p in range(6)}
    return {
        **cases,
        "inst": b"(S'" + f"touch {marker}".encode() + b"'\nios\nsystem\n.",
        "import": b"\x80\x02}U\x04datacantigravity\nfly\ns.",
        "other numpy": b"\x80\x02}U\x04datacnumpy\nload\ns.",
        "other codec": b"\x80\x02}U\x04datac_codecs\nencode\nX\x01\x00\x00\x00aX\x04\x00\x00\x00zlib\x86Rs.",
        "many-line name": b"\x80\x04X\x02\x00\x00\x00osX\x08\x00\x00\x00sys\n\ntem\x93.",
        "persistent id": b"\x80\x02}U\x04dataU\x02idQs.",
        "extension": b"\x80\x02}U\x04data\x82\x01s.",
        "objects": python2_dict({b"data": array % (b"K\x01\x85", dtype % b"O8", python2_dict({})[2:-1])}),
        "too few bytes": python2_dict({b"data": array % (b"(" + number(2**30) * 2 + b"t", dtype % b"u1", word(b"ab"))}),
        "negative shape": python2_dict({b"data": array % (b"(" + number(-1) * 2 + b"t", dtype % b"u1", word(b"a"))}),
        "state for a class": b"\x80\x02cnumpy\nndarray\n}U\x04nameU\x04evils}\x86b.",
        "slots for a class": b"\x80\x02c_codecs\nencode\nN}X\x04\x00\x00\x00nameX\x04\x00\x00\x00evils\x86b.",
        "attributes of a call": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nN}X\x01\x00\x00\x00aK\x01s\x86b.",
        "bytearray of 2**40": b"\x80\x05}U\x04data\x96" + struct.pack("<Q", 2**40) + b"s.",
        "bytes of 2**40": b"\x80\x04}U\x04data\x8e" + struct.pack("<Q", 2**40) + b"s.",
        "memo of 2**31": b"\x80\x02}r\xff\xff\xff\x7f.",
        "a key that overruns the stack": b"\x80\x02}U\x01a)" + b"\x85" * 300_000 + b"s)" + b"\x85" * 300_000 + b"Ns.",
        "keys that overrun the stack": b"\x80\x02}()" + b"\x85" * 300_000 + b"Nu.",
        "a list in itself": b"\x80\x02}(U\x06labels]q\x01h\x01aU\x04dataNu.",
        "not a dict": b"\x80\x02K\x01.",
        "no end": b"\x80\x02}",
        "empty": b"",
    }


@pytest.mark.parametrize("name", list(hostile(Path("x"))))
def test_hostile_pickles_are_refused(tmp_path: Path, name: str) -> None:
    marker, file = tmp_path / "marker", tmp_path / "data_batch_1"
    file.write_bytes(hostile(marker)[name])
    before = set(sys.modules)
    with one_line(file, PICKLE + "|" + CONTENT), little_memory(32 << 20):
        read_batch(file, "labels", 10)
    assert not marker.exists()
    assert set(sys.modules) == before


def test_the_refusal_names_the_global(tmp_path: Path) -> None:
    file = tmp_path / "data_batch_1"
    file.write_bytes(pickle.dumps({"data": _Call(os.system, "true")}))
    with one_line(file, rf"refused, since it contains the global '\w+\.system', which no CIFAR file does; {AGAIN}"):
        read_pickle(file)


def test_a_stand_in_cannot_be_changed_by_a_file(tmp_path: Path) -> None:
    file = tmp_path / "data_batch_1"
    for content in hostile(tmp_path / "marker").values():
        file.write_bytes(content)
        with pytest.raises(HoldfastError):
            read_batch(file, "labels", 10)
    file.write_bytes(BATCH)
    assert read_batch(file, "labels", 10)[1].tolist() == [3, 9]


@pytest.mark.parametrize(
    ("labels", "columns", "problem"),
    [
        ([0, 10], 3072, "a label is outside 0 to 9"),
        ([0, -1], 3072, "a label is outside 0 to 9"),
        ([1], 3072, "1 labels for 2 images"),
        ([1, 2], 3071, r"its 'data' must be bytes \[n, 3072\], not uint8 \[2, 3071\]"),
    ],
)
def test_batches_with_wrong_content(tmp_path: Path, labels: list[int], columns: int, problem: str) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    write_cifar10(folder)
    file = folder / "data_batch_3"
    file.write_bytes(batch(np.zeros((2, columns), np.uint8), labels))
    with one_line(file, f"{problem}; {AGAIN}"):
        load("cifar10", tmp_path)


def test_class_names_that_are_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    write_cifar10(folder)
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": ["one"]}, 2))
    with one_line(folder / "batches.meta", f"its 'label_names' must be 10 names, not list; {AGAIN}"):
        load("cifar10", tmp_path)


# Images.


def test_damaged_images(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_images(tmp_path / "train" / name, 3, (8, 8))
    file = tmp_path / "train" / "b" / "1.png"
    content = file.read_bytes()
    for damaged in (
        b"",
        content[:40],
        content[: len(content) // 2],
        b"%!PS-Adobe-3.0 EPSF-3.0\n" + content,
        b"GIF89a" + content,
    ):
        file.write_bytes(damaged)
        with one_line(file, r"not a complete image \(\w+\); replace or delete it"):
            load(f"folder('{tmp_path}')")


def test_an_image_bomb_is_refused_by_its_header(tmp_path: Path) -> None:
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">2I5B", 50_000, 50_000, 8, 2, 0, 0, 0))
    content = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1 << 20))) + chunk(b"IEND", b"")
    file = tmp_path / "bomb.png"
    file.write_bytes(content)
    with one_line(file, r"not a complete image \(\w+\); replace or delete it"), little_memory():
        decode_images([file])


def test_the_hand_made_pickle_is_one_that_python_reads_alike() -> None:
    x = RNG.integers(0, 256, (2, 3072), dtype=np.uint8)
    content = pickle.loads(batch(x, [3, 1]), encoding="bytes")
    assert np.array_equal(content[b"data"], x)
    assert content[b"labels"] == [3, 1]
