"""Files that are never seen half written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from holdfast.core.errors import HoldfastError

ASIDE = ".part"  # the ending of a file that is being written


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file beside its place, then rename it: readers see the old file or the new one, never a part of it.

    If that fails, nothing is left beside it. The file survives a power cut: it reaches the disk before it is renamed,
    and its folder afterwards. In a text, bytes of a file name that are not UTF-8 are written as ``\\udcff``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "a.txt", "new")
    ...     [p.name for p in Path(folder).iterdir()]
    ['a.txt']
    """
    aside = path.with_name(path.name + ASIDE)
    try:
        with aside.open("wb") as file:
            file.write(content.encode(errors="backslashreplace") if isinstance(content, str) else content)
            sync(file)
        os.replace(aside, path)
    except OSError as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        error.filename = str(path)  # not the file aside, which users do not know
        raise
    sync_folder(path.parent)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in errors of the operating system within this block: a full disk does not say where."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def sync(file: IO[bytes] | IO[str]) -> None:
    """Wait until a file is on the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system can do that."""
    if os.name != "posix":
        return
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def refuse_file(path: Path, purpose: str) -> None:
    """Raise an error if a file is where a folder is needed: at ``path`` or above it."""
    for place in (path, *path.parents):
        if place.exists() and not place.is_dir():
            raise HoldfastError(f"{place} is a file, not a folder for {purpose}: choose another --out")
