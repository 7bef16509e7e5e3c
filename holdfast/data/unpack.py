"""Unpack tar and zip archives: plain files only, each inside the folder meant for it."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import uuid
import zipfile
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import IO

from holdfast.core.errors import HoldfastError


def unpack(archive: Path, into: Path, root: str = "", only: Sequence[str] = ()) -> None:
    """Unpack what lies below ``root`` in the archive (or ``only`` those names) into a folder.

    The files are written aside and moved when all are there, so that an interrupted unpacking leaves no half data
    set. What was in the folder and is not in the archive stays.
    """
    aside = into.parent / f".unpack-{uuid.uuid4().hex}"
    try:
        aside.mkdir(parents=True)
        with closing(_members(archive)) as members:
            for name, stream in members:
                inner = _below(root, _safe(archive, name))
                if inner is not None and (not only or str(inner) in only):
                    (aside / inner).parent.mkdir(parents=True, exist_ok=True)
                    with open(aside / inner, "wb") as out:
                        shutil.copyfileobj(stream, out)
        _move(aside, into)
    except HoldfastError:
        raise
    except Exception as error:  # both libraries raise many kinds for a damaged archive
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise HoldfastError(f"{archive}: cannot be unpacked ({reason}); remove it and fetch it again") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _members(archive: Path) -> Generator[tuple[str, IO[bytes]], None, None]:
    """The name and the content of every file; folders are passed over, links and devices refused."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                if stat.S_ISLNK(info.external_attr >> 16):
                    raise HoldfastError(f"{archive}: holds a link, {info.filename!r}; it is not the published file")
                if not info.is_dir():
                    with packed.open(info) as stream:
                        yield info.filename, stream
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            if not (member.isdir() or member.isfile()):
                raise HoldfastError(f"{archive}: holds a link, {member.name!r}; it is not the published file")
            content = tar.extractfile(member) if member.isfile() else None
            if content is not None:
                with content:
                    yield member.name, content


def _safe(archive: Path, name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or any(c in name for c in "\\:\0"):
        raise HoldfastError(f"{archive}: holds {name!r}, which leaves its folder; it is not the published file")
    return path


def _below(root: str, path: PurePosixPath) -> PurePosixPath | None:
    return path.relative_to(root) if path.is_relative_to(root) else None


def _move(source: Path, target: Path) -> None:
    """Move a file or a tree; folders that are there are joined, files that are there replaced."""
    if source.is_dir() and target.is_dir():
        for child in source.iterdir():
            _move(child, target / child.name)
    else:
        os.replace(source, target)
