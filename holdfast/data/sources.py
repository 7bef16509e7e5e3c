"""The data sets a user can name: ``digits``, ``mnist``, ``cifar10``, ``folder('pictures')``, ...

Each is a small dataclass that knows where its files lie below the data folder and how to read them; the
layouts are those in which the data sets are published. To add one, write a ``Source`` into any file of this
folder.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from holdfast.core.errors import HoldfastError
from holdfast.core.params import Named, build, one, param
from holdfast.data.cache import cached, user_folder
from holdfast.data.dataset import DataSet
from holdfast.data.prepare import moments


@dataclass(frozen=True)
class Source(Named):
    """A named data set; its fields say how it is to be read."""

    def place(self, data_dir: Path) -> Path:
        """The folder that holds its files."""
        raise NotImplementedError

    def missing(self, data_dir: Path) -> list[str]:
        """The names, below ``place``, of what is needed and not there."""
        raise NotImplementedError

    def count(self, data_dir: Path) -> tuple[int, int]:
        """How many training and test samples there are, without a long wait."""
        raise NotImplementedError

    def load(self, data_dir: Path) -> DataSet:
        """The samples, or an error that says which file is absent or damaged."""
        raise NotImplementedError


@cache
def sources() -> dict[str, type[Source]]:
    """Every source of this folder by name."""
    package = importlib.import_module("holdfast.data")
    for module in pkgutil.iter_modules(package.__path__, "holdfast.data."):
        importlib.import_module(module.name)
    return {cls.name: cls for cls in _below(Source) if cls.name}


def _below(cls: type[Source]) -> Iterator[type[Source]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _below(sub)


def source(text: str) -> Source:
    """The source that a string such as ``cinic10(valid=true)`` names."""
    return build(one(text, "data set"), sources(), "data set")


def data_folder(given: str | Path | None = None) -> Path:
    """The data folder that is given, else ``$HOLDFAST_DATA``, else one in the user's cache."""
    return Path(given).expanduser() if given else user_folder("HOLDFAST_DATA", "data")


def load(text: str, data_dir: str | Path | None = None) -> DataSet:
    """Read the data set that ``text`` names from ``data_dir``.

    >>> load("digits").x.shape[1:]
    torch.Size([1, 8, 8])
    """
    return source(text).load(data_folder(data_dir))


def normalise_param() -> Any:
    """The parameter of every published data set: whose channel statistics normalise it."""
    doc = "channel mean and deviation: those usually published, computed from the training images, or off"
    return param("published", doc, choices=("published", "computed", "off"))


def normalised(data: DataSet, how: str, mean: tuple[float, ...], std: tuple[float, ...]) -> DataSet:
    """The data set with the statistics asked for; where none are published, the computed ones stay."""
    if how == "off":
        return replace(data, mean=(), std=())
    return replace(data, mean=mean, std=std) if how == "published" and mean else data


def stored(key: str, files: Sequence[Path], decode: Callable[[], DataSet]) -> DataSet:
    """The data set that ``decode`` reads from ``files``, decoded once, with its computed statistics.

    ``key`` is the source's name with those parameters that change what is decoded.
    """

    def decode_and_measure() -> DataSet:
        data = decode()
        mean, std = moments(data.x)
        return replace(data, mean=mean, std=std)

    return cached(key, files, decode_and_measure)


def check_present(source: Source, data_dir: Path) -> None:
    """Raise the error for a data set that is not there: the files, the folder and the two remedies."""
    missing = source.missing(data_dir)
    if missing:
        remedy = f"fetch them with `holdfast data fetch {source.name}` or put them there"
        raise HoldfastError(f"{source.name}: {shortened(missing)} not found in {source.place(data_dir)}; {remedy}")


def shortened(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


@dataclass(frozen=True)
class Files(Source):
    """A data set of a few files of known names, decoded as a whole."""

    mean: ClassVar[tuple[float, ...]] = ()  # as usually published; none: computed
    std: ClassVar[tuple[float, ...]] = ()

    normalise: str = normalise_param()

    def files(self, data_dir: Path) -> list[Path]:
        """The files, whether they are there or not."""
        raise NotImplementedError

    def decode(self, files: list[Path]) -> DataSet:
        """The samples in the files."""
        raise NotImplementedError

    def missing(self, data_dir: Path) -> list[str]:
        return [file.name for file in self.files(data_dir) if not file.is_file()]

    def count(self, data_dir: Path) -> tuple[int, int]:
        data = self.load(data_dir)
        return len(data.y), len(data.test_y)

    def load(self, data_dir: Path) -> DataSet:
        check_present(self, data_dir)
        files = self.files(data_dir)
        data = stored(self.name, files, lambda: self.decode(files))
        return normalised(data, self.normalise, self.mean, self.std)


@dataclass(frozen=True)
class SourceStatus:
    """One line of ``holdfast data list``."""

    name: str
    present: bool
    folder: Path
    train: int = 0
    test: int = 0
    missing: tuple[str, ...] = ()
    problem: str = ""  # why files that are there cannot be read


def listing(data_dir: str | Path | None = None) -> list[SourceStatus]:
    """What is there, for every source that needs no parameters."""
    root = data_folder(data_dir)
    plain = [cls for cls in sources().values() if all(f.default is not MISSING for f in fields(cls))]
    return [_row(cls(), root) for cls in sorted(plain, key=lambda cls: cls.name)]


def _row(source: Source, data_dir: Path) -> SourceStatus:
    folder = source.place(data_dir)
    missing = tuple(source.missing(data_dir))
    if missing:
        return SourceStatus(source.name, False, folder, missing=missing)
    try:
        train, test = source.count(data_dir)
    except HoldfastError as error:
        return SourceStatus(source.name, True, folder, problem=str(error))
    return SourceStatus(source.name, True, folder, train, test)
