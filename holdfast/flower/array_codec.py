"""Tensors in messages: Flower's ``ArrayRecord``, checked before anything is decoded, and never pickle.

An array travels as the bytes of an ``.npy`` file. Its name, type, shape and size are compared with what is expected
first: a record that claims or holds something else is refused before it is decoded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from io import BytesIO
from typing import NamedTuple

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.tensors import Tensors

MAX_HEADER = 256  # bytes; more than the header of any array we send
DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "int64": torch.int64,
    "int32": torch.int32,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Refused(HoldfastError):
    """A message or an array from another machine is not what was requested."""


class ArraySpec(NamedTuple):
    """The type and shape that an array must have."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{DTYPE_NAMES[self.dtype]}{list(self.shape)}"


Spec = dict[str, ArraySpec]


def spec_of(tensors: Mapping[str, Tensor]) -> Spec:
    """Return the types and shapes of tensors, for others that must be like them."""
    return {name: ArraySpec(t.dtype, tuple(t.shape)) for name, t in tensors.items()}


def pack(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    """Turn tensors into a record of arrays."""
    for name, t in tensors.items():
        if t.dtype not in DTYPE_NAMES:
            raise HoldfastError(f"{name} is {t.dtype}, which cannot be sent: use one of {', '.join(DTYPES)}")
    return ArrayRecord({name: Array(t.detach().cpu().contiguous().numpy()) for name, t in tensors.items()})


def unpack(record: ArrayRecord, expected: Spec, what: str) -> Tensors:
    """Read the tensors of a record.

    Args:
        record: The record.
        expected: The names, types and shapes that it must have.
        what: What the record is, for error messages.

    Returns:
        The tensors by name.
    """
    if record.keys() != expected.keys():
        differing = sorted(record.keys() ^ expected.keys())
        raise Refused(f"{what} has the wrong names: {', '.join(differing[:3])}")
    for name, array in expected.items():
        check_array(f"{what} {name}", record[name], array)
    return {name: decode(f"{what} {name}", record[name], array) for name, array in expected.items()}


def unpack_any(record: ArrayRecord, what: str) -> Tensors:
    """Read the tensors of a record whose names and shapes only the sender knows; each must be as large as it claims."""
    claimed = {name: claimed_spec(f"{what} {name}", array) for name, array in record.items()}
    return unpack(record, claimed, what)


def claimed_spec(what: str, array: Array) -> ArraySpec:
    """Return the type and shape that an array claims to have."""
    if array.dtype not in DTYPES or any(size < 0 for size in array.shape):
        raise Refused(f"{what} is {array.dtype[:20]}, not one of {', '.join(DTYPES)}")
    return ArraySpec(DTYPES[array.dtype], tuple(array.shape))


def check_array(what: str, array: Array, expected: ArraySpec) -> None:
    """Compare what an array claims to be, and its size in bytes, with what is expected."""
    claimed = claimed_spec(what, array)
    if claimed != expected:
        raise Refused(f"{what} is {claimed}, not {expected}")
    extra = len(array.data) - expected.nbytes
    if array.stype != "numpy.ndarray" or not 0 < extra <= MAX_HEADER:
        raise Refused(f"{what} has {len(array.data)} bytes of {array.stype[:20]}, not {expected.nbytes} plus a header")


def decode(what: str, array: Array, expected: ArraySpec) -> Tensor:
    """Decode an array. The header inside its bytes must agree with the record."""
    file = BytesIO(array.data)
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("version")
        shape, column_major, dtype = np.lib.format.read_array_header_1_0(file, max_header_size=MAX_HEADER)
    except Exception as error:  # numpy parses the header as Python: a damaged one may raise anything, even TokenError
        raise Refused(f"{what} is not an array: its header is damaged") from error
    start = file.tell()
    same = (dtype == np.dtype(DTYPE_NAMES[expected.dtype]), shape == expected.shape, not column_major or len(shape) < 2)
    if not all(same) or len(array.data) - start != expected.nbytes:
        raise Refused(f"{what} is announced as {expected}, but its header says {dtype}{list(shape)}")
    return torch.from_numpy(np.frombuffer(array.data, dtype, offset=start).reshape(shape).copy())
