"""csv and parquet: any table with a row per sample."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from holdfast.core.params import param
from holdfast.data.dataset import DataSet
from holdfast.data.decide_encoding import CHOICES
from holdfast.data.normalisation import FEDERATED
from holdfast.data.source import Source, normalise_param
from holdfast.data.user_tables import from_csv, from_parquet


@dataclass(frozen=True)
class TableSource(Source):
    """What all tables in files share: which columns are what, and how they are encoded."""

    path: str = param(MISSING, "the file, relative to the current folder")
    label: tuple[str, ...] = param(MISSING, "the column of the labels, or a list of columns")
    client: str | None = param(None, "the column that names each sample's client")
    test: str | None = param(None, "test samples: a column that says train or test, true or false; or another file")
    columns: tuple[str, ...] | None = param(None, "the columns of the inputs; by default all others")
    drop: tuple[str, ...] = param((), "columns to leave out")
    categorical: tuple[str, ...] = param((), "columns of numbers that stand for categories")
    categories: str = param("onehot", "a number per value, or codes for an embedding", choices=CHOICES["categories"])
    empty: str = param("mean", "what a missing input is", choices=CHOICES["empty"])
    unseen: str = param("other", "what a category is that no training row has", choices=CHOICES["unseen"])
    normalise: str = normalise_param(FEDERATED)
    task: str | None = param(None, "the task, if it cannot be told from the labels")
    positive: str | None = param(None, "the positive one of two classes; by default the second one")
    share: float = param(0.2, "share of every class to hold out if there are no test samples", above=0, below=1)

    def place(self, data_dir: Path) -> Path:
        return Path(self.path).expanduser().parent

    def missing(self, data_dir: Path) -> list[str]:
        file = Path(self.path).expanduser()
        return [] if file.is_file() else [file.name]

    def count(self, data_dir: Path) -> tuple[int, int]:
        data = self.load(data_dir)
        return len(data.y), len(data.test_y)

    def options(self) -> dict[str, Any]:
        """Return the fields as arguments of the functions that read tables."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class CsvTable(TableSource):
    """A CSV file in UTF-8 whose first line has the names of the columns."""

    name: ClassVar[str] = "csv"

    separator: str | None = param(None, "what separates cells; by default what occurs most often in the first line")

    def load(self, data_dir: Path) -> DataSet:
        return from_csv(**self.options())


@dataclass(frozen=True)
class ParquetTable(TableSource):
    """A Parquet file."""

    name: ClassVar[str] = "parquet"

    def load(self, data_dir: Path) -> DataSet:
        return from_parquet(**self.options())
