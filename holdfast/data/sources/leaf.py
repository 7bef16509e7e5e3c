"""leaf: any data set in LEAF's JSON layout."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import ClassVar

from holdfast.core.params import param
from holdfast.data.cache import cached
from holdfast.data.dataset import DataSet
from holdfast.data.formats.leaf_json import leaf_files
from holdfast.data.source import Source
from holdfast.data.user_leaf import from_leaf


@dataclass(frozen=True)
class Leaf(Source):
    """A folder with LEAF's ``train/*.json`` and ``test/*.json``; its users are the clients."""

    name: ClassVar[str] = "leaf"

    path: str = param(MISSING, "the folder of train and test, relative to the current one")
    images: str = param("", "the folder of the images, for CelebA")
    size: int = param(84, "scale these images to size x size", low=1, high=4096)
    length: int = param(0, "characters of a tweet, for Sent140; 0: those of the longest", low=0)
    words: int = param(10_000, "the most frequent words that are known, for Reddit", low=1)

    def place(self, data_dir: Path) -> Path:
        return Path(self.path).expanduser()

    def missing(self, data_dir: Path) -> list[str]:
        root = self.place(data_dir)
        return [f"{part}/*.json" for part in ("train", "test") if not any((root / part).glob("*.json"))]

    def count(self, data_dir: Path) -> tuple[int, int]:
        data = self.load(data_dir)
        return len(data.y), len(data.test_y)

    def load(self, data_dir: Path) -> DataSet:
        root = self.place(data_dir)
        files = leaf_files(root, "train") + leaf_files(root, "test")
        # Images may change without the JSON files that name them.
        return self._read(root) if self.images else cached(str(self), files, lambda: self._read(root))

    def _read(self, root: Path) -> DataSet:
        images, length = self.images or None, self.length or None
        return from_leaf(root, images=images, size=self.size, length=length, words=self.words)
