"""The embedded data set: 1,797 handwritten digits of 8x8 pixels from scikit-learn. No file, no network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from holdfast.data.dataset import DataSet
from holdfast.data.prepare import hold_out, moments
from holdfast.data.sources import Source


@dataclass(frozen=True)
class Digits(Source):
    """The UCI optical digits' test part (Alpaydin and Kaynak, 1998); pixels 0..16 become 0..1.

    It has no published split: a fixed fifth of every class is the test set, whatever the user's seed.
    """

    name: ClassVar[str] = "digits"

    def place(self, data_dir: Path) -> Path:
        import sklearn

        return Path(sklearn.__file__).parent / "datasets" / "data"

    def missing(self, data_dir: Path) -> list[str]:
        return []

    def count(self, data_dir: Path) -> tuple[int, int]:
        data = self.load(data_dir)
        return len(data.y), len(data.test_y)

    def load(self, data_dir: Path) -> DataSet:
        from sklearn.datasets import load_digits

        raw = load_digits()
        x = torch.from_numpy(np.asarray(raw.images, np.float32))[:, None] / 16
        y = torch.from_numpy(np.asarray(raw.target, np.int64))
        train, test = hold_out(y)
        mean, std = moments(x[train])
        classes = tuple(str(digit) for digit in range(10))
        return DataSet(self.name, x[train], y[train], x[test], y[test], classes, mean, std)
