"""IDX files, the format of MNIST, gzipped or not.

An IDX file is ``00 00 08 d``, then ``d`` big-endian 32-bit sizes, then exactly their product in bytes. All of that is
checked before memory is allocated: neither a header that claims terabytes nor a gzip file that inflates without end
gets more than the bytes it should have.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from holdfast.core.errors import HoldfastError

LIMIT = 1 << 31  # bytes in one file: ten times the largest published one
RATIO = 1032  # deflate cannot compress further, so a header that claims more is truncated or wrong
CHUNK = 1 << 20


def read_idx(file: Path, dims: int) -> np.ndarray:
    """Read an IDX file of bytes as an array with ``dims`` axes, or raise an error that names the file."""
    try:
        if file.suffix == ".gz":
            with gzip.open(file) as stream:
                return _read(file, stream, dims, os.path.getsize(file) * RATIO)
        with open(file, "rb") as stream:
            return _read(file, stream, dims, os.path.getsize(file))
    except (OSError, EOFError, zlib.error) as error:
        # gzip checks its magic number, its CRC and its end
        raise HoldfastError(
            f"{file}: not a complete gzip or IDX file ({error}); delete it and download it again"
        ) from error


def _read(file: Path, stream: IO[bytes] | gzip.GzipFile, dims: int, most: int) -> np.ndarray:
    head = stream.read(4 + 4 * dims)
    magic = bytes((0, 0, 8, dims))
    if head[:4] != magic:
        raise HoldfastError(
            f"{file}: it starts with {head[:4].hex(' ') or 'nothing'}, expected {magic.hex(' ')}; "
            "delete it and download it again"
        )
    if len(head) < 4 + 4 * dims:
        raise HoldfastError(f"{file}: truncated in its header; delete it and download it again")
    shape = struct.unpack(f">{dims}I", head[4:])
    size = math.prod(shape)
    if not 0 < size <= LIMIT:
        raise HoldfastError(
            f"{file}: its header claims {size} bytes, expected 1 to {LIMIT}; delete it and download it again"
        )
    if size > most:
        raise HoldfastError(f"{file}: truncated, its header claims {size} bytes; delete it and download it again")
    body = bytearray()
    while len(body) <= size and (chunk := stream.read(min(CHUNK, size + 1 - len(body)))):
        body += chunk
    if len(body) != size:
        problem = "truncated" if len(body) < size else "longer than its header says"
        raise HoldfastError(
            f"{file}: {problem}, expected {size} bytes after the header; delete it and download it again"
        )
    return np.frombuffer(body, np.uint8).reshape(shape)
