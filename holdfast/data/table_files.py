"""Tables in files: CSV, read strictly, and Parquet."""

from __future__ import annotations

import csv
import gzip
import os
import sys
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.data.table import Table, frame_table, recognised, refuse_duplicates, text_table

SEPARATORS = ",;\t|"  # that are recognised
PARQUET, GZIP = b"PAR1", b"\x1f\x8b"  # how files begin; those of Parquet end so, too
PACKED = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
LONGEST = min(sys.maxsize, 2**31 - 1)  # characters in a cell


def read_table(path: Path, separator: str | None = None) -> Table:
    """Read a table from a file.

    Args:
        path: A ``.parquet`` file, or a CSV file in UTF-8 whose first line has the names of the columns.
        separator: What separates the cells of a CSV file; by default the comma, semicolon, tab or bar that occurs most
            often in its first line.

    Returns:
        The table.
    """
    if path.is_dir() or not path.exists():
        raise HoldfastError(f"{path} {'is a folder' if path.is_dir() else 'does not exist'}: give the file of a table")
    return read_parquet(path) if path.suffix.lower() == ".parquet" else read_csv(path, separator)


def read_csv(path: Path, separator: str | None = None) -> Table:
    """Read a CSV file; spaces around cells and empty lines do not count, and everything else that is odd is refused."""
    if separator is not None and (len(separator) != 1 or separator in '"\r\n'):
        raise HoldfastError(f"separator must be one character, such as ',' or ';', not {separator!r}")
    rows = _rows(path, separator)
    if not rows:
        raise HoldfastError(f"{path} is empty: give a line of column names and a line per sample")
    names, body = rows[0], rows[1:]
    _check_names(path, names)
    if not body:
        raise HoldfastError(f"{path} has no samples, only column names: add a line per sample")
    for i, row in enumerate(body):
        if len(row) != len(names):
            raise HoldfastError(
                f"{path}: sample {i} has {len(row)} cells, expected {len(names)} as in the first line: correct it, and "
                "quote cells that contain the separator"
            )
    return text_table(str(path), dict(zip(names, map(list, zip(*body, strict=True)), strict=True)))


def _ends(path: Path) -> tuple[bytes, bytes]:
    """Return the first and the last bytes of a file, which tell what it is."""
    try:
        with path.open("rb") as file:
            first = file.read(4)
            file.seek(-len(first), os.SEEK_END)
            return first, file.read()
    except OSError as error:
        raise HoldfastError(f"cannot read {path}: {error.strerror or error}; check the file") from error


def _opened(path: Path) -> Any:
    """Return what opens a text, packed by gzip or not; files of other kinds are an error that names theirs."""
    start, end = _ends(path)
    if start == end == PARQUET:
        raise HoldfastError(f"{path} is a Parquet file, expected CSV: read it with parquet(...) or from_parquet")
    if start in PACKED:
        raise HoldfastError(
            f"{path} is an archive or a spreadsheet, expected CSV: unpack it, or save the sheet as CSV in UTF-8"
        )
    return gzip.open if start[:2] == GZIP or path.suffix == ".gz" else open


def _rows(path: Path, separator: str | None) -> list[list[str]]:
    limit = csv.field_size_limit(LONGEST)
    try:
        with _opened(path)(path, "rt", newline="", encoding="utf-8-sig") as file:
            start = file.readline()
            file.seek(0)
            mark = separator or max(SEPARATORS, key=start.count)
            found = csv.reader(file, delimiter=mark, skipinitialspace=mark != "\t", strict=True)
            return [[cell.strip() for cell in row] for row in found if row]
    except UnicodeDecodeError as error:
        raise HoldfastError(f"{path} is not in UTF-8: convert it") from error
    except csv.Error as error:
        raise HoldfastError(f"{path} is not a proper CSV file, {error}: correct its quotes") from error
    except (OSError, EOFError) as error:
        raise HoldfastError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}; check the file"
        ) from error
    finally:
        csv.field_size_limit(limit)


def _check_names(path: Path, names: list[str]) -> None:
    refuse_duplicates(str(path), names)
    if all(recognised([name]).kind == "number" for name in names):
        raise HoldfastError(f"{path} has numbers in its first line, expected the names of the columns: add such a line")


def read_parquet(path: Path) -> Table:
    """Read a Parquet file."""
    pandas = require_pandas(str(path))
    if _ends(path)[0] != PARQUET:
        raise HoldfastError(f"{path} is not a Parquet file: read CSV files with csv(...) or from_csv")
    try:
        frame = pandas.read_parquet(path)
    except ImportError as error:
        raise HoldfastError(f"{path} needs the package pyarrow: pip install 'holdfast[tables]'") from error
    except Exception as error:  # pyarrow fails in many ways on damaged files
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise HoldfastError(f"{path} is not a readable Parquet file, {first}: check the file") from error
    if not len(frame):
        raise HoldfastError(f"{path} has no samples: add a row per sample")
    return frame_table(str(path), frame)


def require_pandas(what: str) -> Any:
    """Return the module pandas, or raise an error that says how to install it."""
    try:
        import pandas
    except ImportError as error:
        raise HoldfastError(f"{what} needs the package pandas: pip install 'holdfast[tables]'") from error
    return pandas
