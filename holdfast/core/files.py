"""Files that are never seen half written."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.core.errors import HoldfastError

ASIDE = ".part"  # the ending of a file that is being written


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file beside its place, then rename it: readers see the old file or the new one, never a part of it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "a.txt", "new")
    ...     [p.name for p in Path(folder).iterdir()]
    ['a.txt']
    """
    aside = path.with_name(path.name + ASIDE)
    aside.write_bytes(content.encode() if isinstance(content, str) else content)
    os.replace(aside, path)


def refuse_file(path: Path, purpose: str) -> None:
    """Raise an error if a file is where a folder is needed: at ``path`` or above it."""
    for place in (path, *path.parents):
        if place.exists() and not place.is_dir():
            raise HoldfastError(f"{place} is a file, not a folder for {purpose}: choose another --out")
