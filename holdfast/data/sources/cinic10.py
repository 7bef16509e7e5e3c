"""CINIC-10: CIFAR-10 extended with images from ImageNet, as folders of PNG files.

The address is the authors' own. Several independent loaders agree on the MD5 checksum.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from holdfast.core.params import param
from holdfast.data.dataset import DataSet
from holdfast.data.formats.images import Labelled, labelled_images
from holdfast.data.source import Download, Source, check_present, normalise_param, with_statistics
from holdfast.data.sources._labelled import load_labelled


@dataclass(frozen=True)
class Cinic10(Source):
    """CIFAR-10 with images from ImageNet added (Darlow et al., 2018): 90,000 each to train, validate and test."""

    name: ClassVar[str] = "cinic10"
    classes: ClassVar[tuple[str, ...]] = (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    )
    # Published by the authors with the data.
    mean: ClassVar[tuple[float, ...]] = (0.47889522, 0.47227842, 0.43047404)
    std: ClassVar[tuple[float, ...]] = (0.24205776, 0.23828046, 0.25874835)
    downloads: ClassVar[tuple[Download, ...]] = (
        Download(
            "CINIC-10.tar.gz",
            (
                "https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",
                "https://datashare.is.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",
            ),
            "6ee4d0c996905fe93221de577967a372",
            into="CINIC-10",
        ),
    )

    valid: bool = param(False, "add the validation images to the training set")
    normalise: str = normalise_param()

    def place(self, data_dir: Path) -> Path:
        return data_dir / "CINIC-10"

    def missing(self, data_dir: Path) -> list[str]:
        parts = ("train", "valid", "test") if self.valid else ("train", "test")
        required = [f"{part}/{name}" for part in parts for name in self.classes]
        return [name for name in required if not (self.place(data_dir) / name).is_dir()]

    def parts(self, data_dir: Path) -> tuple[Labelled, Labelled]:
        """Return the training and the test images."""
        check_present(self, data_dir)
        root = self.place(data_dir)
        train = labelled_images(root / "train", self.classes)
        train += labelled_images(root / "valid", self.classes) if self.valid else []
        return train, labelled_images(root / "test", self.classes)

    def count(self, data_dir: Path) -> tuple[int, int]:
        train, test = self.parts(data_dir)
        return len(train), len(test)

    def load(self, data_dir: Path) -> DataSet:
        data = load_labelled(self.name, *self.parts(data_dir), self.classes)
        return with_statistics(data, self.normalise, self.mean, self.std)
