"""Write small files in the published formats, without the code under test."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from holdfast.data.dataset import DataSet

RNG = np.random.default_rng(0)
ARRAYS = ("x", "y", "test_x", "test_y")


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx(folder: Path, parts: tuple[str, str], labels: int, first: int = 0, packed: bool = True) -> DataSet:
    """Write small training and test files; return their content, before any transposition."""
    folder.mkdir(parents=True)
    tensors = []
    for part, n in zip(parts, (2 * labels, labels), strict=True):
        x = RNG.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        y = (np.arange(n) % labels + first).astype(np.uint8)
        for kind, array in (("images-idx3", x), ("labels-idx1", y)):
            name = f"{part}-{kind}-ubyte"
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array), mtime=0))
            else:
                (folder / name).write_bytes(idx(array))
        tensors += [torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))]
    return DataSet("written", *tensors, classes=())


def word(text: bytes) -> bytes:
    return b"T" + struct.pack("<i", len(text)) + text


def number(n: int) -> bytes:
    return b"J" + struct.pack("<i", n)


def python2_array(array: np.ndarray) -> bytes:
    """A uint8 array as Python 2 and numpy 1 pickled it, protocol 2."""
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN" + number(-1) + number(-1) + b"K\x00tb"
    shape = b"(" + b"".join(map(number, array.shape)) + b"t"
    return empty + b"(K\x01" + shape + dtype + b"\x89" + word(array.tobytes()) + b"tb"


def python2_list(items: list[int] | list[bytes]) -> bytes:
    return b"](" + b"".join(number(i) if isinstance(i, int) else word(i) for i in items) + b"e"


def python2_dict(entries: dict[bytes, bytes]) -> bytes:
    return b"\x80\x02}q\x01(" + b"".join(word(k) + v for k, v in entries.items()) + b"u."


def batch(x: np.ndarray, y: list[int], key: bytes = b"labels") -> bytes:
    entries = {b"batch_label": word(b"a batch"), key: python2_list(y), b"data": python2_array(x)}
    return python2_dict({**entries, b"filenames": python2_list([b"%d.png" % i for i in range(len(y))])})


def write_cifar10(folder: Path, each: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Write six batches and the names; return all pixels and labels, the test batch last."""
    folder.mkdir(parents=True)
    x = RNG.integers(0, 256, (6 * each, 3072), dtype=np.uint8)
    y = RNG.integers(0, 10, 6 * each)
    for b, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        part = slice(b * each, (b + 1) * each)
        (folder / name).write_bytes(batch(x[part], [int(v) for v in y[part]]))
    names = [f"class {i}".encode() for i in range(10)]
    meta = {b"label_names": python2_list(names), b"num_vis": number(3072)}
    (folder / "batches.meta").write_bytes(python2_dict(meta))
    return x, y


def write_images(folder: Path, n: int, size: tuple[int, int] = (5, 4), kind: str = "png", mode: str = "RGB") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(n):
        pixels = RNG.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(pixels).convert(mode).save(folder / f"{i}.{kind}")


def same(a: DataSet, b: DataSet) -> bool:
    return all(torch.equal(getattr(a, k), getattr(b, k)) for k in ARRAYS)
