"""Data sets that are folders of images: CINIC-10, Tiny ImageNet, and the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.data.dataset import DataSet
from holdfast.data.images import Labelled, annotated, class_folders, decode_images, labelled
from holdfast.data.prepare import hold_out
from holdfast.data.sources import Source, check_present, normalise_param, normalised, stored


def decode_labelled(items: Labelled, channels: int = 3, size: int = 0) -> tuple[Tensor, Tensor]:
    images = decode_images([file for file, _ in items], channels, size)
    return torch.from_numpy(images), torch.from_numpy(np.array([label for _, label in items], np.int64))


def load_labelled(name: str, train: Labelled, test: Labelled, classes: Sequence[str]) -> DataSet:
    """Decode both parts of a published data set, once."""

    def decode() -> DataSet:
        (x, y), (test_x, test_y) = decode_labelled(train), decode_labelled(test)
        return DataSet(name, x, y, test_x, test_y, tuple(classes))

    return stored(name, [file for file, _ in train + test], decode)


@dataclass(frozen=True)
class Cinic10(Source):
    """CIFAR-10 with ImageNet's pictures added (Darlow et al., 2018): 90,000 each to train, validate, test."""

    name: ClassVar[str] = "cinic10"
    classes: ClassVar[tuple[str, ...]] = (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    )
    # Published by the authors beside the data.
    mean: ClassVar[tuple[float, ...]] = (0.47889522, 0.47227842, 0.43047404)
    std: ClassVar[tuple[float, ...]] = (0.24205776, 0.23828046, 0.25874835)

    valid: bool = param(False, "add the validation images to the training set")
    normalise: str = normalise_param()

    def place(self, data_dir: Path) -> Path:
        return data_dir / "CINIC-10"

    def missing(self, data_dir: Path) -> list[str]:
        parts = ("train", "valid", "test") if self.valid else ("train", "test")
        wanted = [f"{part}/{name}" for part in parts for name in self.classes]
        return [name for name in wanted if not (self.place(data_dir) / name).is_dir()]

    def parts(self, data_dir: Path) -> tuple[Labelled, Labelled]:
        check_present(self, data_dir)
        root = self.place(data_dir)
        train = labelled(root / "train", self.classes)
        train += labelled(root / "valid", self.classes) if self.valid else []
        return train, labelled(root / "test", self.classes)

    def count(self, data_dir: Path) -> tuple[int, int]:
        train, test = self.parts(data_dir)
        return len(train), len(test)

    def load(self, data_dir: Path) -> DataSet:
        data = load_labelled(self.name, *self.parts(data_dir), self.classes)
        return normalised(data, self.normalise, self.mean, self.std)


@dataclass(frozen=True)
class TinyImagenet(Source):
    """200 classes of ImageNet at 64x64 (Stanford CS231n), 100,000 training images.

    The 10,000 images of ``val`` are the test set: those of ``test`` have no published labels.
    """

    name: ClassVar[str] = "tiny-imagenet"
    # In common use, of the 100,000 training images.
    mean: ClassVar[tuple[float, ...]] = (0.4802, 0.4481, 0.3975)
    std: ClassVar[tuple[float, ...]] = (0.2770, 0.2691, 0.2821)

    normalise: str = normalise_param()

    def place(self, data_dir: Path) -> Path:
        return data_dir / "tiny-imagenet-200"

    def missing(self, data_dir: Path) -> list[str]:
        root = self.place(data_dir)
        return [name for name in ("train", "val/images", "val/val_annotations.txt") if not (root / name).exists()]

    def parts(self, data_dir: Path) -> tuple[Labelled, Labelled, list[str]]:
        check_present(self, data_dir)
        root = self.place(data_dir)
        names = list(class_folders(root / "train"))
        return labelled(root / "train", names, "images"), annotated(root / "val", names), names

    def count(self, data_dir: Path) -> tuple[int, int]:
        train, test, _ = self.parts(data_dir)
        return len(train), len(test)

    def load(self, data_dir: Path) -> DataSet:
        data = load_labelled(self.name, *self.parts(data_dir))
        return normalised(data, self.normalise, self.mean, self.std)


@dataclass(frozen=True)
class Folder(Source):
    """Any folder of images: ``path/{train,test}/<class>/*.png``, or ``path/<class>/*.png``.

    Without a test folder, a fixed share of every class is held out. The normalisation is computed.
    """

    name: ClassVar[str] = "folder"

    path: str = param(MISSING, "the folder, from where the command runs")
    size: int = param(0, "scale every image to size x size; 0: they are all of one size", low=0, high=4096)
    grey: bool = param(False, "one channel of grey instead of three of colour")
    test: float = param(0.2, "share of every class to hold out where there is no test folder", above=0, below=1)

    def place(self, data_dir: Path) -> Path:
        return Path(self.path).expanduser()

    def missing(self, data_dir: Path) -> list[str]:
        return [] if self.place(data_dir).is_dir() else ["<class>/*.png"]

    def parts(self, data_dir: Path) -> tuple[Labelled, Labelled, list[str]]:
        root = self.place(data_dir)
        if not root.is_dir():
            raise HoldfastError(
                f"{root}: no such folder; expected {root}/train/<class>/ or {root}/<class>/ with images"
            )
        train = root / "train" if (root / "train").is_dir() else root
        names = list(class_folders(train))
        if not names:
            raise HoldfastError(f"{train}: no class folders in it; expected {train}/<class>/*.png or the like")
        held = labelled(root / "test", names) if train != root and (root / "test").is_dir() else []
        return labelled(train, names), held, names

    def count(self, data_dir: Path) -> tuple[int, int]:
        train, test, _ = self.parts(data_dir)
        if test:
            return len(train), len(test)
        kept, held = hold_out(torch.tensor([label for _, label in train]), self.test)
        return len(kept), len(held)

    def load(self, data_dir: Path) -> DataSet:
        train, test, names = self.parts(data_dir)
        files = [file for file, _ in train + test]
        return stored(str(self), files, lambda: self._decode(train, test, names))

    def _decode(self, train: Labelled, test: Labelled, names: list[str]) -> DataSet:
        channels = 1 if self.grey else 3
        x, y = decode_labelled(train, channels, self.size)
        if test:
            test_x, test_y = decode_labelled(test, channels, self.size)
            if test_x.shape[1:] != x.shape[1:]:
                sizes = f"{list(test_x.shape[2:])} in test, {list(x.shape[2:])} in train"
                raise HoldfastError(f"{self.path}: images of {sizes}; scale all with size=64")
            return DataSet(self.name, x, y, test_x, test_y, tuple(names))
        kept, held = hold_out(y, self.test)
        if not len(held):
            raise HoldfastError(f"{self.path}: one image per class leaves nothing to test; add a test folder")
        return DataSet(self.name, x[kept], y[kept], x[held], y[held], tuple(names))
