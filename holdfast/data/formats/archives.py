"""Unpack tar and zip archives: regular files only, all inside the target folder."""

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

LARGEST = 20_000_000_000  # bytes that an archive may unpack to
CHUNK = 1 << 20


def unpack(archive: Path, into: Path, root: str = "", only: Sequence[str] = ()) -> None:
    """Unpack an archive into a folder.

    The files are written to a temporary folder and moved once all are there, so that an interruption never leaves half
    a data set. Other files in the folder stay.

    Args:
        archive: A tar or zip file.
        into: The target folder.
        root: The folder inside the archive to unpack.
        only: The names to unpack, below ``root``; empty for all.
    """
    aside = into.parent / f".unpack-{uuid.uuid4().hex}"
    try:
        aside.mkdir(parents=True)
        room = LARGEST
        with closing(_members(archive)) as members:
            for name, stream in members:
                inner = _below(root, _safe(archive, name))
                if inner is not None and (not only or str(inner) in only):
                    (aside / inner).parent.mkdir(parents=True, exist_ok=True)
                    with open(aside / inner, "wb") as out:
                        room -= _copy(stream, out, room, archive)
        _move(aside, into)
    except HoldfastError:
        raise
    except Exception as error:  # both libraries raise many kinds of errors for a damaged archive
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise HoldfastError(f"{archive}: cannot be unpacked ({reason}); delete it and download it again") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _copy(stream: IO[bytes], out: IO[bytes], room: int, archive: Path) -> int:
    """Copy a file of an archive and return its size; refuse more than there is room for."""
    size = 0
    while chunk := stream.read(CHUNK):
        size += len(chunk)
        if size > room:
            raise HoldfastError(
                f"{archive}: unpacks to more than {LARGEST / 1e9:.0f} GB, unlike any published data set; delete it and "
                "download it again"
            )
        out.write(chunk)
    return size


def _members(archive: Path) -> Generator[tuple[str, IO[bytes]], None, None]:
    """Yield the name and the content of every file; skip folders, refuse links and devices."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                if stat.S_ISLNK(info.external_attr >> 16):
                    raise _link(archive, info.filename)
                if not info.is_dir():
                    with packed.open(info) as stream:
                        yield info.filename, stream
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            if not (member.isdir() or member.isfile()):
                raise _link(archive, member.name)
            content = tar.extractfile(member) if member.isfile() else None
            if content is not None:
                with content:
                    yield member.name, content


def _link(archive: Path, name: str) -> HoldfastError:
    return HoldfastError(
        f"{archive}: contains a link, {name!r}, unlike the published file; delete it and download it again"
    )


def _safe(archive: Path, name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or any(c in name for c in "\\:\0"):
        raise HoldfastError(
            f"{archive}: contains {name!r}, which is outside its folder, unlike the published file; "
            "delete it and download it again"
        )
    return path


def _below(root: str, path: PurePosixPath) -> PurePosixPath | None:
    return path.relative_to(root) if path.is_relative_to(root) else None


def _move(source: Path, target: Path) -> None:
    """Move a file or a tree; existing folders are merged, existing files replaced."""
    if source.is_dir() and target.is_dir():
        for child in source.iterdir():
            _move(child, target / child.name)
    else:
        os.replace(source, target)
