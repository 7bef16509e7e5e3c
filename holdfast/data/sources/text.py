"""text: any text file or folder of text files, for predicting the next character or token."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import ClassVar

from holdfast.core.params import param
from holdfast.data.dataset import DataSet
from holdfast.data.source import Source
from holdfast.data.user_text import CHARACTER, TOKEN, from_text


@dataclass(frozen=True)
class Text(Source):
    """A folder with a text file per client, ``path/*.txt`` or ``path/{train,test}/*.txt``, or a play with speakers.

    Without a test folder, the last part of every text is the test text.
    """

    name: ClassVar[str] = "text"

    path: str = param(MISSING, "the folder or file, relative to the current folder")
    predict: str = param(CHARACTER, "what is predicted", choices=(CHARACTER, TOKEN))
    length: int = param(80, "characters of a sample", low=1)
    stride: int = param(0, "distance between two samples; 0: 1 for next-character, length for next-token", low=0)
    speakers: bool = param(False, "clients are the speakers of a play, where a line such as HAMLET: opens a speech")
    test: float = param(0.2, "share of every text to test on if there is no test folder", above=0, below=1)

    def place(self, data_dir: Path) -> Path:
        return Path(self.path).expanduser()

    def missing(self, data_dir: Path) -> list[str]:
        return [] if self.place(data_dir).exists() else ["*.txt"]

    def count(self, data_dir: Path) -> tuple[int, int]:
        data = self.load(data_dir)
        return len(data.y), len(data.test_y)

    def load(self, data_dir: Path) -> DataSet:
        return from_text(
            self.place(data_dir), predict=self.predict, length=self.length, stride=self.stride or None,
            share=self.test, speakers=self.speakers,
        )  # fmt: skip
