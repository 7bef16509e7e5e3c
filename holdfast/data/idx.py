"""MNIST and its relatives: IDX files, gzipped or not.

An IDX file is ``00 00 08 d``, then ``d`` big-endian 32-bit sizes, then exactly their product in bytes. All of
that is checked, and checked before memory is taken: neither a header that claims terabytes nor a gzip file
that inflates without end gets more than the bytes it should have.
"""

from __future__ import annotations

import gzip
import math
import os
import string
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, ClassVar

import numpy as np
import torch

from holdfast.core.errors import HoldfastError
from holdfast.data.dataset import DataSet
from holdfast.data.sources import Files

LIMIT = 1 << 31  # bytes in one file: ten times the largest published one
RATIO = 1032  # deflate cannot shrink more than this, so a claim beyond it is a truncated file or a lie
CHUNK = 1 << 20


def read_idx(file: Path, dims: int) -> np.ndarray:
    """The bytes of an IDX file as an array of ``dims`` axes, or an error that names the file."""
    try:
        if file.suffix == ".gz":
            with gzip.open(file) as stream:
                return _read(file, stream, dims, os.path.getsize(file) * RATIO)
        with open(file, "rb") as stream:
            return _read(file, stream, dims, os.path.getsize(file))
    except (OSError, EOFError, zlib.error) as error:
        # gzip's own checks: its magic, its CRC, its end
        raise HoldfastError(f"{file}: not a whole gzip or IDX file ({error}); remove it and fetch it again") from error


def _read(file: Path, stream: IO[bytes] | gzip.GzipFile, dims: int, most: int) -> np.ndarray:
    head = stream.read(4 + 4 * dims)
    magic = bytes((0, 0, 8, dims))
    if head[:4] != magic:
        raise HoldfastError(
            f"{file}: wrong magic {head[:4].hex(' ')}, expected {magic.hex(' ')}; remove it and fetch it again"
        )
    if len(head) < 4 + 4 * dims:
        raise HoldfastError(f"{file}: truncated in its header; remove it and fetch it again")
    shape = struct.unpack(f">{dims}I", head[4:])
    size = math.prod(shape)
    if not 0 < size <= LIMIT:
        raise HoldfastError(
            f"{file}: its header claims {size} bytes, expected 1 to {LIMIT}; remove it and fetch it again"
        )
    if size > most:
        raise HoldfastError(f"{file}: truncated, its header claims {size} bytes; remove it and fetch it again")
    body = bytearray()
    while len(body) <= size and (chunk := stream.read(min(CHUNK, size + 1 - len(body)))):
        body += chunk
    if len(body) != size:
        what = "truncated" if len(body) < size else "longer than its header says"
        raise HoldfastError(f"{file}: {what}, expected {size} bytes after the header; remove it and fetch it again")
    return np.frombuffer(body, np.uint8).reshape(shape)


@dataclass(frozen=True)
class Idx(Files):
    """What the IDX data sets share; each states its folder, file names and labels."""

    folder: ClassVar[str]
    parts: ClassVar[tuple[str, str]] = ("train", "t10k")
    classes: ClassVar[tuple[str, ...]]
    first: ClassVar[int] = 0  # the label of the first class
    transposed: ClassVar[bool] = False

    def place(self, data_dir: Path) -> Path:
        return data_dir / self.folder / "raw"

    def files(self, data_dir: Path) -> list[Path]:
        """Training images and labels, test images and labels: unpacked where there, else gzipped."""
        kinds = ("images-idx3", "labels-idx1")
        plain = [self.place(data_dir) / f"{part}-{kind}-ubyte" for part in self.parts for kind in kinds]
        return [file if file.is_file() else file.with_name(file.name + ".gz") for file in plain]

    def decode(self, files: list[Path]) -> DataSet:
        x, y = self._pair(*files[:2])
        test_x, test_y = self._pair(*files[2:])
        return DataSet(self.name, x, y, test_x, test_y, self.classes)

    def _pair(self, image_file: Path, label_file: Path) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = read_idx(image_file, 3), read_idx(label_file, 1)
        if images.shape[1:] != (28, 28):
            size = "x".join(map(str, images.shape[1:]))
            raise HoldfastError(f"{image_file}: images of {size} pixels, expected 28x28; remove it and fetch it again")
        if len(images) != len(labels):
            counts = f"{len(labels)} labels for {len(images)} images"
            raise HoldfastError(f"{label_file}: {counts} of {image_file.name}; remove both and fetch them again")
        low, high = self.first, self.first + len(self.classes) - 1
        if labels.min() < low or labels.max() > high:
            found = f"labels {labels.min()} to {labels.max()}"
            raise HoldfastError(f"{label_file}: {found}, expected {low} to {high}; remove it and fetch it again")
        if self.transposed:
            images = np.ascontiguousarray(images.swapaxes(1, 2))
        return torch.from_numpy(images)[:, None], torch.from_numpy(labels.astype(np.int64) - self.first)


@dataclass(frozen=True)
class Mnist(Idx):
    """Handwritten digits (LeCun et al., 1998): 60,000 and 10,000 images of 28x28."""

    name: ClassVar[str] = "mnist"
    folder: ClassVar[str] = "MNIST"
    classes: ClassVar[tuple[str, ...]] = tuple(string.digits)
    mean: ClassVar[tuple[float, ...]] = (0.1307,)
    std: ClassVar[tuple[float, ...]] = (0.3081,)


@dataclass(frozen=True)
class FashionMnist(Idx):
    """Pictures of clothes (Xiao et al., 2017) in MNIST's format and sizes."""

    name: ClassVar[str] = "fashion-mnist"
    folder: ClassVar[str] = "FashionMNIST"
    classes: ClassVar[tuple[str, ...]] = (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    )
    mean: ClassVar[tuple[float, ...]] = (0.2860,)
    std: ClassVar[tuple[float, ...]] = (0.3530,)


@dataclass(frozen=True)
class EmnistLetters(Idx):
    """Handwritten letters (Cohen et al., 2017), upper and lower case in one class; 124,800 and 20,800 images.

    The files hold every image transposed and count the letters from 1; here they are upright and start at 0.
    Several means and deviations are in use for it, so they are computed.
    """

    name: ClassVar[str] = "emnist-letters"
    folder: ClassVar[str] = "EMNIST"
    parts: ClassVar[tuple[str, str]] = ("emnist-letters-train", "emnist-letters-test")
    classes: ClassVar[tuple[str, ...]] = tuple(string.ascii_lowercase)
    first: ClassVar[int] = 1
    transposed: ClassVar[bool] = True
