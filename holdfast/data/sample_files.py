"""Samples without labels from a file: arrays of numpy, tables of numbers, texts, and images."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.data.formats.images import ENDINGS, decode_images, image_files
from holdfast.data.table_files import read_table
from holdfast.data.text_files import read_text_file


def read_samples(path: Path, shape: tuple[int, ...], rows: bool = False) -> tuple[Any, list[str]]:
    """Read samples from a file, or from a folder of images.

    Args:
        path: A ``.npy``, ``.npz``, ``.csv`` or ``.parquet`` file, a ``.txt`` file with a text per line, an image, or a
            folder with images.
        shape: The shape of one sample; images get its number of channels.
        rows: Whether ``.csv`` and ``.parquet`` files hold raw rows of a table with named columns, not rows of numbers.

    Returns:
        The samples, as an array, a dictionary of arrays, a table or a list of texts, and the name of each: its file or
        its number.
    """
    packed = rows and path.suffix.lower() == ".gz"
    ending = (path.with_suffix("") if packed else path).suffix.lower()
    if path.is_dir() or ending in ENDINGS:
        return _images(path, shape)
    table = rows and ending in TABLES
    if ending not in READERS and not table:
        known = f"a .npy, .npz, .csv{', .parquet' if rows else ''} or .txt file, an image, or a folder of images"
        raise HoldfastError(f"{path} is not a file of samples that Holdfast reads: give {known}")
    if not path.is_file():
        raise HoldfastError(f"{path} does not exist: check --data")
    if table:
        found = read_table(path)
        return found, [str(number) for number in range(found.rows)]
    x = READERS[ending](path)
    first = next(iter(x.values())) if isinstance(x, dict) else x
    return x, [str(number) for number in range(len(first) if np.ndim(first) else 0)]


def _images(path: Path, shape: tuple[int, ...]) -> tuple[np.ndarray, list[str]]:
    if len(shape) != 3 or shape[0] not in (1, 3):
        expected = f"samples of shape {list(shape)}"
        raise HoldfastError(f"{path} holds images, but the model takes {expected}: give them as .npy, .npz or .csv")
    if not path.exists():
        raise HoldfastError(f"{path} does not exist: check --data")
    files = image_files(path) if path.is_dir() else [path]
    if not files:
        raise HoldfastError(f"{path} has no images: put PNG or JPEG files into it")
    return decode_images(files, shape[0]), [file.name for file in files]


def _array(path: Path) -> np.ndarray:
    found = loaded_arrays(path)
    if not isinstance(found, np.ndarray):
        raise HoldfastError(f"{path} holds several arrays, not one: name it .npz")
    return found


def _arrays(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    """Return the only array of an archive, the one that is called x, or all by name."""
    found = loaded_arrays(path)
    if not isinstance(found, dict):
        raise HoldfastError(f"{path} holds one array, not an archive: name it .npy")
    if not found:
        raise HoldfastError(f"{path} has no arrays: save the samples in it, as np.savez(file, x=samples)")
    return next(iter(found.values())) if len(found) == 1 else found.get("x", found)


def loaded_arrays(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    """Return the array of a ``.npy`` file, or those of an ``.npz`` file by name."""
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            return {name: found[name] for name in found.files}
    except OSError as error:
        raise HoldfastError(f"cannot read {path}: {error.strerror or error}; check the file") from error
    except Exception as error:  # numpy and zipfile fail in many ways on damaged files
        raise HoldfastError(f"{path} holds no arrays of numbers: save them with numpy.save or numpy.savez") from error


def _table(path: Path) -> np.ndarray:
    """Read rows of numbers; a first line of names is skipped."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise HoldfastError(f"{path} is not a CSV file in UTF-8: convert it") from error
    if rows and not any(map(_is_number, rows[0])):
        rows = rows[1:]
    if not rows:
        raise HoldfastError(f"{path} has no rows of numbers: give one per sample")
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]):
            columns = f"{len(row)} columns and sample 0 has {len(rows[0])}"
            raise HoldfastError(f"{path}: sample {number} has {columns}: give all the same number")
        bad = [cell for cell in row if not _is_number(cell)]
        if bad:
            raise HoldfastError(f"{path}: sample {number} has {bad[0]!r} where a number is expected: correct it")
    return np.array(rows, dtype=np.float64)


def _lines(path: Path) -> list[str]:
    """Read texts, one per line; empty lines are left out."""
    found = [line for line in read_text_file(path).split("\n") if line]
    if not found:
        raise HoldfastError(f"{path} has no texts: give one per line")
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


TABLES = (".csv", ".parquet")
READERS: dict[str, Callable[[Path], Any]] = {".npy": _array, ".npz": _arrays, ".csv": _table, ".txt": _lines}
