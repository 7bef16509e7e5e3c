"""The contract of a named data set: where its files are, where they are published, and how to read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from holdfast.core.errors import HoldfastError
from holdfast.core.params import Named, param
from holdfast.data.cache import cached
from holdfast.data.dataset import DataSet
from holdfast.data.normalisation import CHOICES, DOC, FEDERATED, OFF, POOLED, PUBLISHED, RENAMED
from holdfast.data.prepare import moments


@dataclass(frozen=True)
class Download:
    """A published file.

    The checksum guards against damage, not against forgery.

    Attributes:
        file: Where the file is saved, below the data folder.
        urls: Addresses of the same file, in the order in which they are tried.
        md5: Its MD5 checksum.
        size: Its size in bytes; 0 if unknown.
        into: For an archive: the folder, below the data folder, that its content goes to.
        root: For an archive: the folder inside it that holds the content.
        only: For an archive: the names to unpack, below ``root``; empty for all.
    """

    file: str
    urls: tuple[str, ...]
    md5: str
    size: int = 0
    into: str = ""
    root: str = ""
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source(Named):
    """A named data set. Its fields say how to read it.

    Attributes:
        downloads: Where its files are published; empty if they cannot be downloaded.
        checksum: That of its samples as published and as its defaults read them; empty where it is not known.
    """

    downloads: ClassVar[tuple[Download, ...]] = ()
    checksum: ClassVar[str] = ""

    def place(self, data_dir: Path) -> Path:
        """Return the folder that holds its files."""
        raise NotImplementedError

    def missing(self, data_dir: Path) -> list[str]:
        """Return the names, below ``place``, of required files that are not there."""
        raise NotImplementedError

    def count(self, data_dir: Path) -> tuple[int, int]:
        """Count the training and test samples, without decoding them where that takes long."""
        raise NotImplementedError

    def load(self, data_dir: Path) -> DataSet:
        """Read the samples, or raise an error that says which file is missing or damaged."""
        raise NotImplementedError


def normalise_param(default: str = PUBLISHED) -> Any:
    """Return the parameter of a data set that chooses its channel statistics."""
    return param(default, DOC, choices=CHOICES, renamed=RENAMED)


def with_statistics(data: DataSet, choice: str, mean: tuple[float, ...], std: tuple[float, ...]) -> DataSet:
    """Choose the statistics that normalise a data set.

    Args:
        data: A data set with the statistics of its training samples.
        choice: ``published``, ``federated``, ``pooled`` or ``off``.
        mean: The published mean per channel; empty if none is published.
        std: The published standard deviation per channel.

    Returns:
        The data set with the chosen statistics; with the pooled ones where none are published.
    """
    if choice in (OFF, FEDERATED):
        return replace(data, mean=(), std=(), normalise=choice)
    if choice == PUBLISHED and mean:
        return replace(data, mean=mean, std=std, normalise=PUBLISHED)
    return replace(data, normalise=POOLED)


def decoded_once(key: str, files: Sequence[Path], decode: Callable[[], DataSet]) -> DataSet:
    """Decode a data set with its computed statistics, or take it from the cache.

    Args:
        key: The source's name with those parameters that change what is decoded.
        files: The files that ``decode`` reads.
        decode: Reads the samples.

    Returns:
        The data set, with the mean and standard deviation of its training part.
    """

    def decode_and_measure() -> DataSet:
        data = decode()
        mean, std = moments(data.x)
        return replace(data, mean=mean, std=std)

    return cached(key, files, decode_and_measure)


def check_present(source: Source, data_dir: Path) -> None:
    """Raise an error if files are missing: it names the files, the folder and two remedies."""
    missing = source.missing(data_dir)
    if missing:
        remedy = f"download them with `holdfast data fetch {source.name}` or put them there"
        raise HoldfastError(f"{source.name}: {shortened(missing)} not found in {source.place(data_dir)}; {remedy}")


def shortened(names: Sequence[str], most: int = 8) -> str:
    """Join names with commas; count those after the first ``most``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


@dataclass(frozen=True)
class FileSource(Source):
    """A data set in a few files with known names, decoded as a whole.

    Attributes:
        mean: The usual published mean per channel; empty: it is computed.
        std: The usual published standard deviation per channel.
    """

    mean: ClassVar[tuple[float, ...]] = ()
    std: ClassVar[tuple[float, ...]] = ()

    normalise: str = normalise_param()

    def files(self, data_dir: Path) -> list[Path]:
        """Return the files, whether they exist or not."""
        raise NotImplementedError

    def decode(self, files: list[Path]) -> DataSet:
        """Read the samples from the files."""
        raise NotImplementedError

    def missing(self, data_dir: Path) -> list[str]:
        return [file.name for file in self.files(data_dir) if not file.is_file()]

    def count(self, data_dir: Path) -> tuple[int, int]:
        data = self.load(data_dir)
        return len(data.y), len(data.test_y)

    def load(self, data_dir: Path) -> DataSet:
        check_present(self, data_dir)
        files = self.files(data_dir)
        data = decoded_once(self.name, files, lambda: self.decode(files))
        return with_statistics(data, self.normalise, self.mean, self.std)
