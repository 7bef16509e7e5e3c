"""Download published data sets: resumable, checked, and clear about what to do where there is no network."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.data.remotes import REMOTES, Remote
from holdfast.data.sources import Source, data_folder, shortened, source
from holdfast.data.unpack import unpack

Progress = Callable[[str, int, int], None]  # file, bytes there, bytes in all (0: unknown)
TIMEOUT = 30.0  # seconds without a byte
CHUNK = 1 << 18


def fetch(name: str, data_dir: str | Path | None = None, progress: Progress | None = None) -> Path:
    """Fetch what is missing of a data set and give its folder. Broken off, it goes on from where it was."""
    wanted, root = source(name), data_folder(data_dir)
    missing = wanted.missing(root)
    if missing and wanted.name not in REMOTES:
        raise HoldfastError(
            f"{wanted.name} is not published anywhere; put {shortened(missing)} into {wanted.place(root)}"
        )
    for remote in REMOTES.get(wanted.name, ()) if missing else ():
        file = root / remote.file
        if remote.into or file.name in missing:
            _download(wanted, remote, root, progress or (lambda *_: None))
        if remote.into:
            unpack(file, root / remote.into, remote.root, remote.only)
            file.unlink()
    missing = wanted.missing(root)
    if missing:
        raise HoldfastError(f"{name}: fetched, but {shortened(missing)} not in it; the publisher changed the archive")
    return wanted.place(root)


def _download(wanted: Source, remote: Remote, root: Path, progress: Progress) -> None:
    """Get a file whole and right, or leave what came as ``.part`` and say what to do."""
    file = root / remote.file
    part = file.with_name(file.name + ".part")
    problem = ""
    for url in remote.urls:
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            _receive(url, part, remote.size, progress)
            break
        except (OSError, http.client.HTTPException, ValueError) as error:
            problem = problem or f"{url}: {getattr(error, 'reason', None) or error or type(error).__name__}"
    else:
        files, folder = shortened(wanted.missing(root)), wanted.place(root)
        again = "run it again to go on, or" if part.exists() else "without a network,"
        raise HoldfastError(f"cannot download {problem}; {again} put {files} into {folder}")
    found = _md5(part)
    if found != remote.md5:
        part.unlink()
        raise HoldfastError(f"{file}: checksum {found}, expected {remote.md5}; it was removed, fetch it again")
    os.replace(part, file)


def _receive(url: str, part: Path, size: int, progress: Progress) -> None:
    """Add to ``part`` what it lacks. A server that cannot resume sends all, and all is taken anew."""
    have = part.stat().st_size if part.exists() else 0
    if size and have == size:
        return
    try:
        response = _request(url, have)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 416 or not have:  # 416: there is no such range, so the part is not of this file
            raise
        response = _request(url, 0)
    with response:
        resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else size
        if size and total != size:  # a notice that the file has moved, most likely
            raise ConnectionError(f"the file there has {total} bytes, not {size}")
        with open(part, "ab" if resumed else "wb") as out:
            while (not total or have <= total) and (chunk := response.read(CHUNK)):
                out.write(chunk)
                have += len(chunk)
                progress(part.name.removesuffix(".part"), have, total)
    if total and have != total:
        raise ConnectionError(f"the connection broke after {have} of {total} bytes")


def _request(url: str, start: int) -> http.client.HTTPResponse:
    request = urllib.request.Request(url, headers={"User-Agent": "holdfast"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT)
    return response


def _md5(file: Path) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
