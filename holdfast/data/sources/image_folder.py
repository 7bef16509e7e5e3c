"""folder: any folder of images, with one folder per class."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.data.dataset import DataSet
from holdfast.data.formats.images import Labelled, class_folders, class_names, labelled_images
from holdfast.data.normalisation import FEDERATED
from holdfast.data.prepare import hold_out_test
from holdfast.data.source import Source, decoded_once, normalise_param, with_statistics
from holdfast.data.sources._labelled import decode_labelled


@dataclass(frozen=True)
class ImageFolder(Source):
    """Any folder of images: ``path/{train,test}/<class>/*.png``, or ``path/<class>/*.png``.

    Without a test folder, a fixed share of every class is held out.
    """

    name: ClassVar[str] = "folder"

    path: str = param(MISSING, "the folder, relative to the current one")
    size: int = param(0, "scale every image to size x size; 0 if all have the same size", low=0, high=4096)
    grey: bool = param(False, "one grey channel instead of three colour channels")
    test: float = param(0.2, "share of every class to hold out if there is no test folder", above=0, below=1)
    normalise: str = normalise_param(FEDERATED)

    def place(self, data_dir: Path) -> Path:
        return Path(self.path).expanduser()

    def missing(self, data_dir: Path) -> list[str]:
        return [] if self.place(data_dir).is_dir() else ["<class>/*.png"]

    def parts(self, data_dir: Path) -> tuple[Labelled, Labelled, list[str]]:
        """Return the training images, the test images (none without a test folder) and the class names."""
        root = self.place(data_dir)
        if not root.is_dir():
            raise HoldfastError(f"{root}: no such folder; expected images in {root}/train/<class>/ or {root}/<class>/")
        train = root / "train" if (root / "train").is_dir() else root
        names = list(class_folders(train))
        if not names:
            raise HoldfastError(f"{train}: no class folders in it; put images into {train}/<class>/")
        held_out = labelled_images(root / "test", names) if train != root and (root / "test").is_dir() else []
        return labelled_images(train, names), held_out, names

    def count(self, data_dir: Path) -> tuple[int, int]:
        train, test, _ = self.parts(data_dir)
        if test:
            return len(train), len(test)
        kept, held_out = hold_out_test(torch.tensor([label for _, label in train]), self.test)
        return len(kept), len(held_out)

    def load(self, data_dir: Path) -> DataSet:
        train, test, names = self.parts(data_dir)
        files = [file for file, _ in train + test]
        key = str(replace(self, normalise=FEDERATED))  # the cache has the pooled statistics, whatever is chosen
        data = decoded_once(key, files, lambda: self._decode(train, test, names))
        return with_statistics(data, self.normalise, (), ())

    def _decode(self, train: Labelled, test: Labelled, names: list[str]) -> DataSet:
        channels = 1 if self.grey else 3
        x, y = decode_labelled(train, channels, self.size)
        if test:
            test_x, test_y = decode_labelled(test, channels, self.size)
            if test_x.shape[1:] != x.shape[1:]:
                sizes = f"{list(test_x.shape[2:])} in test and {list(x.shape[2:])} in train"
                raise HoldfastError(f"{self.path}: images of {sizes}, expected one size; scale all, as with size=64")
            return DataSet(self.name, x, y, test_x, test_y, tuple(class_names(names)))
        kept, held_out = hold_out_test(y, self.test)
        if not len(held_out):
            raise HoldfastError(f"{self.path}: one image per class leaves nothing to test on; add a test folder")
        return DataSet(self.name, x[kept], y[kept], x[held_out], y[held_out], tuple(class_names(names)))
