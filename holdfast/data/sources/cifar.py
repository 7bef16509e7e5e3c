"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) in the authors' "Python version": pickled batches.

Addresses and checksums are those that torchvision uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from holdfast.core.errors import HoldfastError
from holdfast.data.dataset import DataSet
from holdfast.data.formats.pickles import read_pickle
from holdfast.data.source import Download, FileSource

PIXELS = 3 * 32 * 32


def read_batch(file: Path, key: str, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Read and check one batch file.

    Args:
        file: The batch file.
        key: The name of its labels.
        classes: The number of classes.

    Returns:
        Images [n, 3, 32, 32] and labels [n].
    """
    content = read_pickle(file)
    x, y = content.get("data"), content.get(key)
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != PIXELS:
        raise HoldfastError(
            f"{file}: its 'data' must be bytes [n, {PIXELS}], not {_kind(x)}; delete it and download it again"
        )
    if not isinstance(y, list) or not all(type(label) is int for label in y):
        raise HoldfastError(
            f"{file}: its '{key}' must be a list of integers, not {_kind(y)}; delete it and download it again"
        )
    if len(x) != len(y) or not y:
        raise HoldfastError(f"{file}: {len(y)} labels for {len(x)} images; delete it and download it again")
    if min(y) < 0 or max(y) >= classes:
        raise HoldfastError(f"{file}: a label is outside 0 to {classes - 1}; delete it and download it again")
    return x.reshape(-1, 3, 32, 32), np.asarray(y, np.int64)


def read_names(file: Path, key: str, classes: int) -> tuple[str, ...]:
    """Read the ``classes`` class names that a meta file stores under ``key``."""
    names = read_pickle(file).get(key)
    if not isinstance(names, list) or len(names) != classes or not all(type(n) in (bytes, str) for n in names):
        raise HoldfastError(
            f"{file}: its '{key}' must be {classes} names, not {_kind(names)}; delete it and download it again"
        )
    return tuple(n.decode("latin1") if isinstance(n, bytes) else n for n in names)


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    return "absent" if value is None else type(value).__name__


@dataclass(frozen=True)
class CifarSource(FileSource):
    """What the two data sets have in common.

    Attributes:
        folder: The folder below the data folder.
        train: The training batches.
        test: The test batch.
        meta: The file with the class names.
        labels: The key of the labels in a batch.
        names: The key of the class names in the meta file.
        classes: The number of classes.
    """

    folder: ClassVar[str]
    train: ClassVar[tuple[str, ...]]
    test: ClassVar[str]
    meta: ClassVar[str]
    labels: ClassVar[str]
    names: ClassVar[str]
    classes: ClassVar[int]

    def place(self, data_dir: Path) -> Path:
        return data_dir / self.folder

    def files(self, data_dir: Path) -> list[Path]:
        return [self.place(data_dir) / name for name in (*self.train, self.test, self.meta)]

    def decode(self, files: list[Path]) -> DataSet:
        *batches, meta = files
        names = read_names(meta, self.names, self.classes)
        pairs = [read_batch(file, self.labels, self.classes) for file in batches]
        x, y = (torch.from_numpy(np.concatenate(parts)) for parts in zip(*pairs[:-1], strict=True))
        # Copied, since the arrays of a pickle are read-only views of its bytes.
        test_x, test_y = (torch.from_numpy(part.copy()) for part in pairs[-1])
        return DataSet(self.name, x, y, test_x, test_y, names)


@dataclass(frozen=True)
class Cifar10(CifarSource):
    """Ten classes of 5,000 training and 1,000 test images each, 32x32 pixels in colour."""

    name: ClassVar[str] = "cifar10"
    checksum: ClassVar[str] = "a38905a0"
    folder: ClassVar[str] = "cifar-10-batches-py"
    train: ClassVar[tuple[str, ...]] = tuple(f"data_batch_{b}" for b in range(1, 6))
    test: ClassVar[str] = "test_batch"
    meta: ClassVar[str] = "batches.meta"
    labels: ClassVar[str] = "labels"
    names: ClassVar[str] = "label_names"
    classes: ClassVar[int] = 10
    mean: ClassVar[tuple[float, ...]] = (0.4914, 0.4822, 0.4465)
    std: ClassVar[tuple[float, ...]] = (0.2470, 0.2435, 0.2616)
    downloads: ClassVar[tuple[Download, ...]] = (
        Download(
            "cifar-10-python.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
            "c58f30108f718f92721af3b95e74349a",
            170_498_071,
            into="cifar-10-batches-py",
            root="cifar-10-batches-py",
        ),
    )


@dataclass(frozen=True)
class Cifar100(CifarSource):
    """A hundred classes (the fine labels) of 500 training and 100 test images each, 32x32 pixels in colour."""

    name: ClassVar[str] = "cifar100"
    checksum: ClassVar[str] = "2498e50f"
    folder: ClassVar[str] = "cifar-100-python"
    train: ClassVar[tuple[str, ...]] = ("train",)
    test: ClassVar[str] = "test"
    meta: ClassVar[str] = "meta"
    labels: ClassVar[str] = "fine_labels"
    names: ClassVar[str] = "fine_label_names"
    classes: ClassVar[int] = 100
    mean: ClassVar[tuple[float, ...]] = (0.5071, 0.4865, 0.4409)
    std: ClassVar[tuple[float, ...]] = (0.2673, 0.2564, 0.2762)
    downloads: ClassVar[tuple[Download, ...]] = (
        Download(
            "cifar-100-python.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
            "eb9058c3a382ffc7106e4002c42a8d85",
            169_001_437,
            into="cifar-100-python",
            root="cifar-100-python",
        ),
    )
