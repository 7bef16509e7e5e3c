"""Decoded data sets on disk, memory-mapped, so that a later start reads only what it needs.

An entry is a folder of ``.npy`` files and a ``meta.json``. Its name contains a hash of the source and of every source
file's path, size and time. An entry therefore never changes, and a changed source gets a new one. Entries hold plain
numbers with their checksums and are opened without pickle. A missing or damaged entry is rebuilt silently.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.format import open_memmap
from torch import Tensor

from holdfast.data.dataset import DataSet
from holdfast.data.vocabulary import Vocabulary
from holdfast.tasks.task_names import read_task

FORMAT = "2"  # part of every hash: increase it when decoding changes
ARRAYS = ("x", "y", "test_x", "test_y")
OPTIONAL_ARRAYS = ("groups", "test_groups")  # of data that is already federated


def user_folder(variable: str, name: str) -> Path:
    """Return the folder that an environment variable names, or ``name`` in the user's cache folder."""
    if os.environ.get(variable):
        return Path(os.environ[variable]).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "holdfast" / name


def cache_dir() -> Path:
    """Return the folder of decoded data sets."""
    return user_folder("HOLDFAST_CACHE", "decoded")


def cached(key: str, files: Sequence[Path], decode: Callable[[], DataSet]) -> DataSet:
    """Return a decoded data set from the cache, or decode it and store it there.

    A cache that cannot be written (a read-only home, a full disk) is no error: it only saves time.

    Args:
        key: The source's name with its parameters.
        files: The files that ``decode`` reads.
        decode: Reads the data set.

    Returns:
        The data set.
    """
    base = key.split("(")[0]
    place = _digest(key, *(str(f.absolute()) for f in files))
    entry = cache_dir() / f"{base}-{place}-{_digest(FORMAT, *map(_stamp, files))}"
    known = _open(entry)
    if known is not None:
        return known
    data = decode()
    with suppress(OSError):
        _write(entry, data)
        for other in entry.parent.glob(f"{base}-{place}-*"):
            if other != entry:
                shutil.rmtree(other, ignore_errors=True)
    return _open(entry) or data


def _stamp(file: Path) -> str:
    status = os.stat(file)
    return f"{status.st_size} {status.st_mtime_ns}"


def _digest(*texts: str) -> str:
    content = "\n".join(texts).encode("utf-8", "surrogateescape")
    return hashlib.sha256(content).hexdigest()[:16]


def _open(entry: Path) -> DataSet | None:
    """Return the entry, or None if it is missing or damaged in any way."""
    try:
        meta = json.loads((entry / "meta.json").read_text())
        arrays: dict[str, Any] = {
            name: _map(entry / f"{name}.npy", meta["arrays"][name], meta["checksums"][name])
            for name in (*ARRAYS, *(n for n in OPTIONAL_ARRAYS if n in meta["arrays"]))
        }
        classes, mean, std = (tuple(meta[k]) for k in ("classes", "mean", "std"))
        return DataSet(name=meta["name"], **arrays, classes=classes, mean=mean, std=std, **_optional(meta))
    except Exception:  # whatever the damage, the remedy is to decode again
        return None


def _optional(meta: dict[str, Any]) -> dict[str, Any]:
    """Return what only some data sets have: clients with names, a task other than classification, a vocabulary."""
    found: dict[str, Any] = {"clients": tuple(meta.get("clients", ()))}
    if "task" in meta:
        found |= {"task": read_task(meta["task"]), "normalise": meta["normalise"]}
    if meta.get("tokens"):
        found["vocabulary"] = Vocabulary(tuple(meta["tokens"]), meta["characters"])
    return found


def _map(file: Path, expected: list[object], checksum: int) -> Tensor:
    # Mode "c" is copy-on-write: torch sees writable memory, and the file cannot be changed through it.
    array = open_memmap(file, mode="c")
    whole = array.offset + array.nbytes == os.path.getsize(file)
    same = [str(array.dtype), *array.shape] == expected and zlib.crc32(np.ascontiguousarray(array).data) == checksum
    if not whole or not same:
        raise ValueError(f"{file} disagrees with meta.json")
    return torch.from_numpy(array)


def _write(entry: Path, data: DataSet) -> None:
    """Write to a temporary folder and rename it, so that no reader ever sees half an entry."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    aside = entry.parent / f".new-{uuid.uuid4().hex}"
    try:
        aside.mkdir()
        kinds: dict[str, list[object]] = {}
        checksums: dict[str, int] = {}
        for name in (*ARRAYS, *(n for n in OPTIONAL_ARRAYS if getattr(data, n) is not None)):
            array: np.ndarray = getattr(data, name).contiguous().numpy()
            np.save(aside / f"{name}.npy", array, allow_pickle=False)
            kinds[name] = [str(array.dtype), *array.shape]
            checksums[name] = zlib.crc32(array.data)
        known = data.vocabulary or Vocabulary(())
        meta = {
            "name": data.name,
            "classes": data.classes,
            "mean": data.mean,
            "std": data.std,
            "clients": data.clients,
            "task": str(data.task),
            "normalise": data.normalise,
            "tokens": known.tokens,
            "characters": known.characters,
            "arrays": kinds,
            "checksums": checksums,
        }
        (aside / "meta.json").write_text(json.dumps(meta))
        shutil.rmtree(entry, ignore_errors=True)  # only a damaged entry can be in the way
        os.rename(aside, entry)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
