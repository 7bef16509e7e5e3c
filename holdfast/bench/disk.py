"""What it costs that files survive a power cut."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.bench import checkpoints
from holdfast.bench.timing import Timing
from holdfast.core.files import ASIDE, write_atomically

SUITE = "One write of a file that survives a power cut, against one that does not wait for the disk"
SIZE = 1_000_000  # bytes
REPEATS = 20


def rows() -> Iterator[Timing]:
    """Time writes in the current folder, which is on the disk that runs are kept on."""
    with tempfile.TemporaryDirectory(dir=".", prefix=".holdfast-bench-") as folder:
        path, content = Path(folder) / "file", os.urandom(SIZE)
        base, ours = (fastest_write(write, path, content) for write in (write_without_sync, write_atomically))
        yield Timing(SUITE, f"{SIZE / 1e6:g} MB", ours, "ms", base, f"the fastest of {REPEATS}")
    yield from checkpoints.rows()


def write_without_sync(path: Path, content: bytes) -> None:
    """Write a file beside its place and rename it, as ``write_atomically`` does, but do not wait for the disk."""
    aside = path.with_name(path.name + ASIDE)
    aside.write_bytes(content)
    os.replace(aside, path)


def fastest_write(write: Callable[[Path, bytes], None], path: Path, content: bytes) -> float:
    """Return the milliseconds of a write, the least of several."""
    best = float("inf")
    for _ in range(REPEATS):
        started = time.perf_counter()
        write(path, content)
        best = min(best, time.perf_counter() - started)
    return best * 1000
