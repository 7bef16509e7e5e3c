"""Look up data sets by name: ``digits``, ``mnist``, ``cifar10``, ``folder('pictures')``, ..."""

from __future__ import annotations

import zlib
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path

from holdfast.core.discovery import discover
from holdfast.core.errors import HoldfastError
from holdfast.core.params import build, one
from holdfast.core.user_files import file_reference
from holdfast.data.cache import user_folder
from holdfast.data.dataset import DataSet
from holdfast.data.file_data import from_file
from holdfast.data.source import Source

CSV = "csv('{}', label=...)"
READ_BY = {  # files by their endings
    ".csv": CSV, ".tsv": CSV, ".gz": CSV, ".parquet": "parquet('{}', label=...)", ".txt": "text('{}')",
}  # fmt: skip


def sources() -> dict[str, type[Source]]:
    """Return every data set by name: those of ``holdfast/data/sources`` and those that a user has written."""
    return discover("holdfast.data.sources", Source)


def source(text: str) -> Source:
    """Return the data set that a text such as ``cinic10(valid=true)`` names, without reading it."""
    known = READ_BY.get(Path(text).suffix.lower(), "")
    if known and "(" not in text:
        raise HoldfastError(f"{text} is a file, not the name of a data set: write {known.format(text)}")
    return build(one(text, "data set"), sources(), "data set")


def data_folder(given: str | Path | None = None) -> Path:
    """Return the data folder: ``given``, else ``$HOLDFAST_DATA``, else a folder in the user's cache."""
    return Path(given).expanduser() if given else user_folder("HOLDFAST_DATA", "data")


def load(text: str, data_dir: str | Path | None = None) -> DataSet:
    """Load a data set by name.

    Args:
        text: Its name, with parameters if any: ``mnist``, ``cinic10(valid=true)``, ``folder('pictures', size=64)``; or
            a function in a file, ``pictures.py:load``.
        data_dir: The folder of all data sets; by default ``$HOLDFAST_DATA`` or a folder in the user's cache.

    Returns:
        The training and test samples.

    >>> load("digits").x.shape[1:]
    torch.Size([1, 8, 8])
    """
    reference = file_reference(text, "data set")
    if reference is not None:
        data, name = from_file(reference), ""
    else:
        known = source(text)
        data, name = known.load(data_folder(data_dir)), str(known) if str(known) != known.name else ""
    return replace(data, name=name or data.name, checksum=sample_checksum(data))


def sample_checksum(data: DataSet) -> str:
    """Return the CRC-32 of training and test samples as they are stored, before any normalisation.

    It tells an exact data set from a copy that was compressed or is in another order. Clients that are made on demand
    have none.
    """
    if data.on_demand is not None:
        return ""
    checksum = 0
    for array in (data.x, data.y, data.test_x, data.test_y):
        checksum = zlib.crc32(array.contiguous().numpy().data, checksum)
    return f"{checksum:08x}"


def is_published(text: str, checksum: str) -> bool:
    """Tell whether a checksum is that of a named data set as it was published; where that is unknown, any will do."""
    published = "" if file_reference(text, "data set") else source(text).checksum
    return bool(checksum) and checksum == (published or checksum)


@dataclass(frozen=True)
class SourceStatus:
    """One row of ``holdfast data list``.

    Attributes:
        name: The data set.
        present: Whether all its files are there.
        folder: The folder that holds, or should hold, its files.
        train: The number of training samples.
        test: The number of test samples.
        missing: The files that are not there.
        problem: Why files that are there cannot be read.
    """

    name: str
    present: bool
    folder: Path
    train: int = 0
    test: int = 0
    missing: tuple[str, ...] = ()
    problem: str = ""


def listing(data_dir: str | Path | None = None) -> list[SourceStatus]:
    """Return the status of every data set that needs no parameters, sorted by name."""
    root = data_folder(data_dir)
    plain = [cls for cls in sources().values() if all(f.default is not MISSING for f in fields(cls))]
    return [_status(cls(), root) for cls in sorted(plain, key=lambda cls: cls.name)]


def _status(source: Source, data_dir: Path) -> SourceStatus:
    folder = source.place(data_dir)
    missing = tuple(source.missing(data_dir))
    if missing:
        return SourceStatus(source.name, False, folder, missing=missing)
    try:
        train, test = source.count(data_dir)
    except HoldfastError as error:
        return SourceStatus(source.name, True, folder, problem=str(error))
    return SourceStatus(source.name, True, folder, train, test)
