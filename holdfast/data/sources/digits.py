"""The built-in data set: 1,797 handwritten digits of 8x8 pixels from scikit-learn. Needs no download."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from holdfast.core.errors import HoldfastError
from holdfast.data.dataset import DataSet
from holdfast.data.prepare import hold_out_test, moments
from holdfast.data.source import Source, normalise_param, with_statistics


@dataclass(frozen=True)
class Digits(Source):
    """The UCI optical digits' test part (Alpaydin and Kaynak, 1998); pixels 0..16 become 0..1.

    It has no published test set: a fixed fifth of every class is held out, for every seed. Its published statistics are
    those of the other four fifths.
    """

    name: ClassVar[str] = "digits"

    normalise: str = normalise_param()

    def place(self, data_dir: Path) -> Path:
        return folder() if find_spec("sklearn") else data_dir

    def missing(self, data_dir: Path) -> list[str]:
        return [] if find_spec("sklearn") else ["scikit-learn"]

    def count(self, data_dir: Path) -> tuple[int, int]:
        data = self.load(data_dir)
        return len(data.y), len(data.test_y)

    def load(self, data_dir: Path) -> DataSet:
        if find_spec("sklearn") is None:
            raise HoldfastError(
                "digits: scikit-learn, which holds this data set, is not installed; run pip install scikit-learn"
            )
        images, labels = images_and_labels()
        x = torch.from_numpy(np.asarray(images, np.float32))[:, None] / 16
        y = torch.from_numpy(np.asarray(labels, np.int64))
        train, test = hold_out_test(y)
        mean, std = moments(x[train])
        classes = tuple(str(digit) for digit in range(10))
        data = DataSet(self.name, x[train], y[train], x[test], y[test], classes, mean, std)
        return with_statistics(data, self.normalise, mean, std)


@cache
def images_and_labels() -> tuple[np.ndarray, np.ndarray]:
    """Return the images and labels that come with scikit-learn, whose import would take longer than to parse them."""
    with gzip.open(folder() / "digits.csv.gz", "rt") as file:
        rows = np.loadtxt(file, delimiter=",", dtype=np.int64)
    return rows[:, :-1].reshape(-1, 8, 8), rows[:, -1]


def folder() -> Path:
    """Return where scikit-learn keeps its data sets."""
    spec = find_spec("sklearn")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "datasets" / "data"
