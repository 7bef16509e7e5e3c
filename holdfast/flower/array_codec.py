"""Tensors on the wire: Flower's ``ArrayRecord``, checked before anything is decoded, and never pickle.

An array travels as the bytes of an ``.npy`` file. Names, types, shapes and sizes are compared with what is expected
first: a record that claims or holds something else is refused without an array being made of it.
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
from holdfast.method.part import Tensors

HEADER = 256  # more than the header of any array we send
KINDS = {
    "float32": torch.float32,
    "float64": torch.float64,
    "int64": torch.int64,
    "int32": torch.int32,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
NAMES = {kind: name for name, kind in KINDS.items()}


class Refused(HoldfastError):
    """What came over the wire is not what was asked for."""


class ArraySpec(NamedTuple):
    """What an array must be."""

    kind: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.kind.itemsize

    def __str__(self) -> str:
        return f"{NAMES[self.kind]}{list(self.shape)}"


Spec = dict[str, ArraySpec]


def spec(tensors: Mapping[str, Tensor]) -> Spec:
    """What these tensors are, for others that must be like them."""
    return {name: ArraySpec(t.dtype, tuple(t.shape)) for name, t in tensors.items()}


def pack(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    """Tensors as a record of arrays."""
    for name, t in tensors.items():
        if t.dtype not in NAMES:
            raise HoldfastError(f"{name} is {t.dtype}, which does not travel: use one of {', '.join(KINDS)}")
    return ArrayRecord({name: Array(t.detach().cpu().contiguous().numpy()) for name, t in tensors.items()})


def unpack(record: ArrayRecord, expected: Spec, what: str) -> Tensors:
    """The tensors of a record that has exactly these names, types and shapes."""
    if record.keys() != expected.keys():
        odd = sorted(record.keys() ^ expected.keys())
        raise Refused(f"{what} has the wrong names: {', '.join(odd[:3])}")
    for name, shape in expected.items():
        refuse_other_shapes(f"{what} {name}", record[name], shape)
    return {name: decode(f"{what} {name}", record[name], shape) for name, shape in expected.items()}


def unpack_any(record: ArrayRecord, what: str) -> Tensors:
    """The tensors of a record whose names and shapes only the sender knows; each must be as large as it claims."""
    claimed = {name: claim(f"{what} {name}", array) for name, array in record.items()}
    return unpack(record, claimed, what)


def claim(what: str, array: Array) -> ArraySpec:
    if array.dtype not in KINDS or any(size < 0 for size in array.shape):
        raise Refused(f"{what} is {array.dtype[:20]}, not one of {', '.join(KINDS)}")
    return ArraySpec(KINDS[array.dtype], tuple(array.shape))


def refuse_other_shapes(what: str, array: Array, expected: ArraySpec) -> None:
    """Compare what an array claims to be, and how many bytes it has, with what is expected."""
    found = claim(what, array)
    if found != expected:
        raise Refused(f"{what} is {found}, not {expected}")
    extra = len(array.data) - expected.nbytes
    if array.stype != "numpy.ndarray" or not 0 < extra <= HEADER:
        raise Refused(f"{what} has {len(array.data)} bytes of {array.stype[:20]}, not {expected.nbytes} and a header")


def decode(what: str, array: Array, expected: ArraySpec) -> Tensor:
    """The array itself. The header inside its bytes must say what the record says."""
    file = BytesIO(array.data)
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("version")
        shape, backwards, kind = np.lib.format.read_array_header_1_0(file, max_header_size=HEADER)
    except (ValueError, EOFError) as error:
        raise Refused(f"{what} is not an array: its header is damaged") from error
    start = file.tell()
    same = (kind == np.dtype(NAMES[expected.kind]), shape == expected.shape, not backwards or len(shape) < 2)
    if not all(same) or len(array.data) - start != expected.nbytes:
        raise Refused(f"{what} says {expected} outside and {kind}{list(shape)} inside")
    return torch.from_numpy(np.frombuffer(array.data, kind, offset=start).reshape(shape).copy())
