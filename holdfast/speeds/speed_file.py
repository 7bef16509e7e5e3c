"""Client speeds from a file: a line of CSV, or an object of JSON, per client."""

from __future__ import annotations

import csv
import io
import json
import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from holdfast.core.errors import HoldfastError, unknown
from holdfast.speeds.client_speeds import ClientSpeeds, Speeds

RATES = ("speed", "down", "up")  # an empty one is infinite
COLUMNS = ("client", *RATES, "available", "repeat")
TIMES = "available must be times in seconds such as {}, in order"
EXAMPLES = {".csv": "0-3600 7200-9000", ".json": "[[0, 3600], [7200, 9000]]"}


class Trace(NamedTuple):
    """When a client is there.

    Attributes:
        times: From when to when, in order; None: always.
        repeat: After how many seconds they begin again; infinite: never.
    """

    times: tuple[tuple[float, float], ...] | None = None
    repeat: float = math.inf

    def present(self, at: float) -> bool:
        """Tell whether the client is there at a time."""
        if self.times is None:
            return True
        now = at % self.repeat if math.isfinite(self.repeat) else at
        return any(start <= now < end for start, end in self.times)

    def next_start(self, after: float) -> float:
        """Return the next time at which the client comes; infinite if it never does."""
        if not self.times:
            return math.inf
        if math.isinf(self.repeat):
            return min((start for start, _ in self.times if start > after), default=math.inf)
        turn = math.floor(after / self.repeat)
        starts = (start + number * self.repeat for number in (turn, turn + 1) for start, _ in self.times)
        return min(start for start in starts if start > after)


class FileSpeeds(ClientSpeeds):
    """The speeds in a file, by client number."""

    def __init__(self, rates: dict[int, tuple[float, float, float]], traces: dict[int, Trace]) -> None:
        self.rates, self.traces = rates, traces

    @property
    def leaves(self) -> bool:
        return any(trace.times is not None for trace in self.traces.values())

    def of(self, clients: np.ndarray) -> Speeds:
        return Speeds(*np.array([self.rates[int(i)] for i in clients]).reshape(-1, len(RATES)).T)

    def present(self, clients: np.ndarray, at: float) -> np.ndarray:
        return np.array([self.traces[int(i)].present(at) for i in clients], dtype=bool)

    def next_change(self, clients: np.ndarray, after: float) -> float:
        return min(self.traces[int(i)].next_start(after) for i in clients)


def is_file(text: str) -> bool:
    """Tell whether ``--client-speeds`` names a file."""
    return Path(text).suffix.lower() in EXAMPLES


def read_bytes(path: Path) -> bytes:
    """Return the content of a file of speeds."""
    try:
        return path.expanduser().read_bytes()
    except OSError as error:
        raise HoldfastError(f"cannot read {path}: {error.strerror}; check --client-speeds") from error


def checksum(text: str) -> int | None:
    """Return the checksum of the file that ``--client-speeds`` names; None if it names none."""
    return zlib.crc32(read_bytes(Path(text))) if is_file(text) else None


def parse(path: Path, content: bytes, clients: Sequence[int], names: Sequence[str] = ()) -> FileSpeeds:
    """Read a file of speeds.

    Args:
        path: The file, which says how it is written and is named by errors.
        content: What it holds.
        clients: The clients that need speeds: those that have samples.
        names: What the clients are called, if they have names; their numbers work as well.

    Returns:
        The speeds of all clients in the file.
    """
    read = _csv if path.suffix.lower() == ".csv" else _json
    numbers = {name: number for number, name in enumerate(names)}
    rates: dict[int, tuple[float, float, float]] = {}
    traces: dict[int, Trace] = {}
    for where, row in read(path, content):
        for column in row:
            if column not in COLUMNS:
                raise HoldfastError(f"{path}: {unknown('column', str(column), COLUMNS)}")
        client = _client(where, row.get("client"), numbers)
        if client in rates:
            raise HoldfastError(f"{where}: client {row['client']} has a line before: keep one of them")
        rates[client] = tuple(_above_zero(where, name, row.get(name)) for name in RATES)  # type: ignore[assignment]
        traces[client] = _trace(where, path, row)
    missing = [i for i in clients if i not in rates]
    if missing:
        first = names[missing[0]] if names else missing[0]
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise HoldfastError(f"{path} has no line for client {first}{more}: every client that has samples needs one")
    return FileSpeeds(rates, traces)


def _csv(path: Path, content: bytes) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield the lines of a CSV file, with where they are."""
    try:
        lines = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True))
    except (ValueError, csv.Error) as error:
        raise HoldfastError(f"{path} is not valid CSV in UTF-8 ({error}): write it again") from error
    for number, line in enumerate(lines, start=2):
        where = f"{path}, line {number}"
        if None in line or None in line.values():
            raise HoldfastError(f"{where}: it has more or fewer fields than the first line: write one per column")
        yield where, {k.strip(): v.strip() or None for k, v in line.items()}


def _json(path: Path, content: bytes) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSON file, with where they are."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise HoldfastError(f"{path} is not valid JSON: write it again") from error
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise HoldfastError(f'{path} must be a list with an object for every client, such as {{"client": 0}}')
    for number, row in enumerate(found, start=1):
        yield f"{path}, entry {number}", row


def _client(where: str, value: Any, names: dict[str, int]) -> int:
    """Return the number of a client that is given by name or number."""
    if isinstance(value, str) and value in names:
        return names[value]
    number = _number(value)
    if number is None or number < 0 or number != int(number):
        raise HoldfastError(f"{where}: client must be a client's number or name, not {_shown(value)}")
    return int(number)


def _above_zero(where: str, name: str, value: Any) -> float:
    """Return a rate; one that is left out is infinite."""
    number = math.inf if value is None else _number(value)
    if number is None or number <= 0:
        raise HoldfastError(f"{where}: {name} must be a number above 0, or left out, not {_shown(value)}")
    return number


def _trace(where: str, path: Path, row: dict[str, Any]) -> Trace:
    """Return when a client is there."""
    given, repeat = row.get("available"), _above_zero(where, "repeat", row.get("repeat"))
    if given is None:
        if math.isfinite(repeat):
            raise HoldfastError(f"{where}: repeat has no effect without available: leave it out")
        return Trace()
    split: Callable[[Any], list[Any]] = _words if path.suffix.lower() == ".csv" else _pairs
    times = [(_number(start), _number(end)) for start, end in split(given)]
    flat = [t for pair in times for t in pair if t is not None]
    rising = all(a < b or (a == b and i % 2) for i, (a, b) in enumerate(pairwise(flat)))
    if not times or len(flat) < 2 * len(times) or flat[0] < 0 or not rising:
        example = TIMES.format(EXAMPLES[path.suffix.lower()])
        raise HoldfastError(f"{where}: {example}, not {_shown(given)}")
    if flat[-1] > repeat:
        raise HoldfastError(f"{where}: the last time, {flat[-1]:g}, is after repeat, {repeat:g}: raise repeat")
    return Trace(tuple((float(a), float(b)) for a, b in times if a is not None and b is not None), repeat)


def _words(text: str) -> list[Any]:
    """Split ``0-3600 7200-9000`` into pairs; what is no pair becomes one of nothing."""
    found = [word.split("-") for word in text.split()]
    return [pair if len(pair) == 2 else (None, None) for pair in found]


def _pairs(value: Any) -> list[Any]:
    """Return a list of pairs as it is; what is no pair becomes one of nothing."""
    rows = value if isinstance(value, list) else [None]
    return [pair if isinstance(pair, list) and len(pair) == 2 else (None, None) for pair in rows]


def _number(value: Any) -> float | None:
    """Return a finite number that is given as such or as text; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _shown(value: Any) -> str:
    """Return a value as an error shows it."""
    text = json.dumps(value) if not isinstance(value, str) else value
    return "nothing" if value is None else text if len(text) <= 60 else f"{text[:60]}..."
