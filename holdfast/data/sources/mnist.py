"""MNIST, Fashion-MNIST and EMNIST Letters: images of 28x28 pixels in IDX files.

Addresses and checksums are those that torchvision uses.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from holdfast.core.errors import HoldfastError
from holdfast.data.dataset import DataSet
from holdfast.data.formats.idx import read_idx
from holdfast.data.source import Download, FileSource


def idx_downloads(folder: str, mirrors: tuple[str, ...], files: dict[str, tuple[str, int]]) -> tuple[Download, ...]:
    """Return the downloads of gzipped IDX files, given their names, checksums and sizes."""
    return tuple(
        Download(f"{folder}/raw/{name}-ubyte.gz", tuple(f"{m}{name}-ubyte.gz" for m in mirrors), md5, size)
        for name, (md5, size) in files.items()
    )


@dataclass(frozen=True)
class IdxSource(FileSource):
    """What the IDX data sets have in common.

    Attributes:
        folder: The folder below the data folder.
        parts: How the names of the training and the test files start.
        classes: The class names.
        first: The label of the first class.
        transposed: Whether rows and columns are swapped in the files.
    """

    folder: ClassVar[str]
    parts: ClassVar[tuple[str, str]] = ("train", "t10k")
    classes: ClassVar[tuple[str, ...]]
    first: ClassVar[int] = 0
    transposed: ClassVar[bool] = False

    def place(self, data_dir: Path) -> Path:
        return data_dir / self.folder / "raw"

    def files(self, data_dir: Path) -> list[Path]:
        """Return training images and labels, then test images and labels; unpacked files where there are any."""
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
            raise HoldfastError(
                f"{image_file}: images of {size} pixels, expected 28x28; delete it and download it again"
            )
        if len(images) != len(labels):
            raise HoldfastError(
                f"{label_file}: {len(labels)} labels for the {len(images)} images of {image_file.name}; "
                "delete both files and download them again"
            )
        low, high = self.first, self.first + len(self.classes) - 1
        if labels.min() < low or labels.max() > high:
            raise HoldfastError(
                f"{label_file}: labels {labels.min()} to {labels.max()}, expected {low} to {high}; "
                "delete it and download it again"
            )
        if self.transposed:
            images = np.ascontiguousarray(images.swapaxes(1, 2))
        return torch.from_numpy(images)[:, None], torch.from_numpy(labels.astype(np.int64) - self.first)


@dataclass(frozen=True)
class Mnist(IdxSource):
    """Handwritten digits (LeCun et al., 1998): 60,000 training and 10,000 test images of 28x28 pixels."""

    name: ClassVar[str] = "mnist"
    checksum: ClassVar[str] = "3528fddb"
    folder: ClassVar[str] = "MNIST"
    classes: ClassVar[tuple[str, ...]] = tuple(string.digits)
    mean: ClassVar[tuple[float, ...]] = (0.1307,)
    std: ClassVar[tuple[float, ...]] = (0.3081,)
    downloads: ClassVar[tuple[Download, ...]] = idx_downloads(
        "MNIST",
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
        {
            "train-images-idx3": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            "train-labels-idx1": ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            "t10k-images-idx3": ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            "t10k-labels-idx1": ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        },
    )


@dataclass(frozen=True)
class FashionMnist(IdxSource):
    """Pictures of clothes (Xiao et al., 2017) in MNIST's format and sizes."""

    name: ClassVar[str] = "fashion-mnist"
    folder: ClassVar[str] = "FashionMNIST"
    classes: ClassVar[tuple[str, ...]] = (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    )
    mean: ClassVar[tuple[float, ...]] = (0.2860,)
    std: ClassVar[tuple[float, ...]] = (0.3530,)
    downloads: ClassVar[tuple[Download, ...]] = idx_downloads(
        "FashionMNIST",
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        {
            "train-images-idx3": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            "train-labels-idx1": ("25c81989df183df01b3e8a0aad5dffbe", 29_515),
            "t10k-images-idx3": ("bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            "t10k-labels-idx1": ("bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        },
    )


@dataclass(frozen=True)
class EmnistLetters(IdxSource):
    """Handwritten letters (Cohen et al., 2017), upper and lower case in one class; 124,800 and 20,800 images.

    The files hold every image transposed and count the letters from 1. Here images are upright and labels start at 0.
    Several means and deviations are in use for this data set, so they are computed.
    """

    name: ClassVar[str] = "emnist-letters"
    folder: ClassVar[str] = "EMNIST"
    parts: ClassVar[tuple[str, str]] = ("emnist-letters-train", "emnist-letters-test")
    classes: ClassVar[tuple[str, ...]] = tuple(string.ascii_lowercase)
    first: ClassVar[int] = 1
    transposed: ClassVar[bool] = True
    downloads: ClassVar[tuple[Download, ...]] = (
        Download(
            "EMNIST/raw/gzip.zip",
            ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
            "58c8d27c78d21e728a6bc7b3cc06412e",
            561_753_746,
            into="EMNIST/raw",
            root="gzip",
            only=(
                "emnist-letters-train-images-idx3-ubyte.gz",
                "emnist-letters-train-labels-idx1-ubyte.gz",
                "emnist-letters-test-images-idx3-ubyte.gz",
                "emnist-letters-test-labels-idx1-ubyte.gz",
            ),
        ),
    )
