"""Download published data sets: resumable, checked, with instructions where there is no network."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.files import ASIDE
from holdfast.data.catalog import data_folder, source
from holdfast.data.formats.archives import unpack
from holdfast.data.source import Download, Source, shortened

Progress = Callable[[str, int, int], None]  # file, bytes received, total bytes (0: unknown)
TIMEOUT = 30.0  # seconds without a byte
CHUNK = 1 << 18


def fetch(name: str, data_dir: str | Path | None = None, progress: Progress | None = None) -> Path:
    """Download the missing files of a data set. An interrupted download resumes where it stopped.

    Args:
        name: The data set.
        data_dir: The folder of all data sets; by default ``$HOLDFAST_DATA`` or a folder in the user's cache.
        progress: Called with the file, the bytes received and the total.

    Returns:
        The folder of the data set.
    """
    data_set, root = source(name), data_folder(data_dir)
    missing = data_set.missing(root)
    if missing and not data_set.downloads:
        raise HoldfastError(
            f"{data_set.name} is not published for download; put {shortened(missing)} into {data_set.place(root)}"
        )
    for download in data_set.downloads if missing else ():
        file = root / download.file
        if download.into or file.name in missing:
            _download(data_set, download, root, progress or (lambda *_: None))
        if download.into:
            unpack(file, root / download.into, download.root, download.only)
            file.unlink()
    missing = data_set.missing(root)
    if missing:
        raise HoldfastError(
            f"{name}: the downloaded archive lacks {shortened(missing)}; put them into {data_set.place(root)}"
        )
    return data_set.place(root)


def _download(data_set: Source, download: Download, root: Path, progress: Progress) -> None:
    """Download and check one file; after a failure the bytes received stay in a ``.part`` file."""
    file = root / download.file
    part = file.with_name(file.name + ASIDE)
    problem = ""
    for url in download.urls:
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            _receive(url, part, download.size, progress)
            break
        except (OSError, http.client.HTTPException, ValueError) as error:
            problem = problem or f"{url}: {getattr(error, 'reason', None) or error or type(error).__name__}"
    else:
        files, folder = shortened(data_set.missing(root)), data_set.place(root)
        remedy = "run the command again to resume, or" if part.exists() else "check the network, or"
        raise HoldfastError(f"cannot download {problem}; {remedy} put {files} into {folder}")
    checksum = _md5(part)
    if checksum != download.md5:
        part.unlink()
        raise HoldfastError(
            f"{file}: checksum {checksum}, expected {download.md5}; it was deleted, so download it again"
        )
    os.replace(part, file)


def _receive(url: str, part: Path, size: int, progress: Progress) -> None:
    """Append the missing bytes to ``part``; start over if the server cannot resume."""
    have = part.stat().st_size if part.exists() else 0
    if size and have == size:
        return
    try:
        response = _request(url, have)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 416 or not have:  # 416: the range does not exist, so the part belongs to another file
            raise
        response = _request(url, 0)
    with response:
        resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else size
        if size and total != size:  # most likely a notice that the file has moved
            raise ConnectionError(f"the file at this address has {total} bytes, not {size}")
        with open(part, "ab" if resumed else "wb") as out:
            while (not total or have <= total) and (chunk := response.read(CHUNK)):
                out.write(chunk)
                have += len(chunk)
                progress(part.name.removesuffix(ASIDE), have, total)
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
