"""One file for each client, read when the client is drawn."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.core.errors import HoldfastError
from holdfast.data.sample_files import loaded_arrays

PLACE = "{client}"  # in a pattern: where the number of the client goes
Pair = tuple[Any, Any]


@dataclass(frozen=True)
class ClientFiles:
    """Reads the inputs and labels of a client, by its number. Made by ``client_files``.

    Attributes:
        files: A pattern, or the file of every client.
        label: The name of the labels.
    """

    files: str | tuple[str, ...]
    label: str = "y"

    def __len__(self) -> int:
        return 0 if isinstance(self.files, str) else len(self.files)

    def __call__(self, client: int) -> Pair:
        name = self.files.replace(PLACE, str(client)) if isinstance(self.files, str) else self.files[client]
        path = Path(name)
        if path.suffix not in READERS:
            raise HoldfastError(f"{path} is not a file of samples that Holdfast reads: use {', '.join(READERS)}")
        if not path.is_file():
            raise HoldfastError(f"{path} does not exist: check the files of the clients")
        return READERS[path.suffix](path, self.label)


def client_files(files: str | Sequence[str | Path], label: str = "y") -> ClientFiles:
    """Read each client from a file of its own: ``from_clients(client_files(...), test=...)``.

    Args:
        files: A pattern with ``{client}`` in the place of the client's number, which counts from 0, or a list of files.
            An ``.npz`` file holds the arrays ``x`` and ``y``, a ``.pt`` file a dictionary or a pair of these, and a
            ``.csv`` file a line of names, numbers, and one column of labels.
        label: The name of the labels in ``.npz``, ``.pt`` and ``.csv`` files.

    Returns:
        A function that returns the inputs and labels of a client.
    """
    if not isinstance(files, str):
        return ClientFiles(tuple(map(str, files)), label)
    if PLACE not in files:
        raise HoldfastError(f"{files} is the same file for every client: write {PLACE} where the number goes")
    return ClientFiles(files, label)


def _pair(path: Path, found: dict[str, Any], label: str) -> Pair:
    if "x" not in found or label not in found:
        names = ", ".join(map(str, found)) or "nothing"
        raise HoldfastError(f"{path} has {names}, expected x and {label}: save the client's inputs and labels as these")
    return found["x"], found[label]


def _archive(path: Path, label: str) -> Pair:
    found = loaded_arrays(path)
    return _pair(path, found if isinstance(found, dict) else {}, label)


def _tensors(path: Path, label: str) -> Pair:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # zip, pickle and torch fail in many ways on damaged files
        raise HoldfastError(f"{path} holds no tensors: save them with torch.save((x, y), file)") from error
    if isinstance(found, (tuple, list)) and len(found) == 2:
        return found[0], found[1]
    return _pair(path, found if isinstance(found, dict) else {}, label)


def _table(path: Path, label: str) -> Pair:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            names, *rows = [row for row in csv.reader(file) if row] or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise HoldfastError(f"{path} is not a CSV file in UTF-8: convert it") from error
    if not names:
        raise HoldfastError(f"{path} is empty: give a line of names and a line per sample")
    if label not in names:
        raise HoldfastError(f"{path} has the columns {', '.join(names)}, but no {label}: name the labels with label=")
    at = names.index(label)
    if any(len(row) != len(names) for row in rows):
        raise HoldfastError(f"{path} has lines of different lengths: give a value for each of {len(names)} columns")
    y = [row.pop(at) for row in rows]
    try:
        x = np.array(rows, dtype=np.float64)
    except ValueError as error:
        raise HoldfastError(f"{path}: {' '.join(str(error).split())}; give numbers beside the labels") from error
    return x, [int(v) for v in y] if all(v.lstrip("-").isdecimal() for v in y) else y


READERS: dict[str, Callable[[Path, str], Pair]] = {".npz": _archive, ".pt": _tensors, ".csv": _table}
