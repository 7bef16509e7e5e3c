"""Read pickles that hold numpy arrays, bytes, strings, numbers, lists and dicts, and nothing else.

A pickle is a program: it can name any function of any module and call it. This reader is Python's own, without
everything that a CIFAR batch does not use:

- ``find_class`` never imports. It knows the four names that a pickled array needs and returns the stand-ins below. Any
  other name is refused. ``_codecs.encode`` is one of the four, since Python 3 writes the bytes of an array that way in
  protocol 2.
- Only the opcodes that plain data needs are allowed. Those that make instances, read persistent ids or the extension
  registry, or allocate memory by a number in the file (``BYTEARRAY8``) are not.
- The reader is the one in Python, not the one in C. The latter keeps its memo in an array as long as the largest index
  in the file, so twelve bytes can claim 64 GB.
- An array gets its memory once its bytes have been read: shape and dtype must agree with their number. Arrays of
  objects are refused.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from holdfast.core.errors import HoldfastError

LIMIT = 1 << 30  # bytes in one file: six times the largest published one

OPCODES = (
    *(pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK),
    *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE),
    *(pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1, pickle.BINFLOAT),
    *(pickle.BINSTRING, pickle.SHORT_BINSTRING, pickle.BINBYTES, pickle.SHORT_BINBYTES, pickle.BINBYTES8),
    *(pickle.BINUNICODE, pickle.SHORT_BINUNICODE, pickle.BINUNICODE8),
    *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
    *(pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS),
    *(pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS),
    *(pickle.BINPUT, pickle.LONG_BINPUT, pickle.MEMOIZE, pickle.BINGET, pickle.LONG_BINGET),
    *(pickle.GLOBAL, pickle.STACK_GLOBAL, pickle.REDUCE, pickle.BUILD),
)


class RefusedError(Exception):
    """The pickle asks for something that plain data does not need."""


class _Closed:
    """A stand-in that takes no state. Without this, ``BUILD`` could set attributes of the class itself."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        raise RefusedError("state for an object that has none")


class _Encode(_Closed):
    """In place of ``_codecs.encode(text, 'latin1')``."""

    def __new__(cls, text: str, encoding: str) -> bytes:  # type: ignore[misc]
        if not isinstance(text, str) or encoding != "latin1":
            raise RefusedError(f"encoding {encoding!r}"[:40])
        return text.encode("latin1")


class _NdArray(_Closed):
    """In place of the class ``numpy.ndarray``: only a name to pass to ``_reconstruct``."""

    def __new__(cls) -> _NdArray:
        raise RefusedError("a bare numpy.ndarray")


class _DType:
    """In place of ``numpy.dtype(code, ...)``: booleans, integers and floats."""

    __slots__ = ("value",)

    def __init__(self, code: str | bytes, *_: object) -> None:
        text = code.decode("latin1") if isinstance(code, bytes) else code
        if not (isinstance(text, str) and re.fullmatch(r"b1|[iu][1248]|f[248]", text)):
            raise RefusedError(f"a numpy array of {text!r}"[:60])
        self.value = np.dtype(text)

    def __setstate__(self, state: tuple[object, ...]) -> None:
        self.value = self.value.newbyteorder(">" if state[1] in (">", b">") else "<")


class _Array:
    """In place of ``_reconstruct(ndarray, (0,), b'b')``: empty until its state is set."""

    __slots__ = ("value",)

    def __init__(self, kind: object, *_: object) -> None:
        if kind is not _NdArray:
            raise RefusedError("an array of another class")
        self.value: np.ndarray | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        if not (type(shape) is tuple and all(type(n) is int and n >= 0 for n in shape) and len(shape) <= 8):
            raise RefusedError("an array without a shape")
        if type(dtype) is not _DType or type(raw) is not bytes:
            raise RefusedError("an array without plain bytes")
        if math.prod(shape) * dtype.value.itemsize != len(raw):
            raise RefusedError(f"an array of shape {shape} in {len(raw)} bytes"[:80])
        self.value = np.frombuffer(raw, dtype.value).reshape(shape, order="F" if fortran else "C")


KNOWN: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,  # numpy 1, as published
    ("numpy._core.multiarray", "_reconstruct"): _Array,  # numpy 2
    ("numpy", "ndarray"): _NdArray,
    ("numpy", "dtype"): _DType,
    ("_codecs", "encode"): _Encode,
}


class _PlainUnpickler(pickle._Unpickler):
    """Python's unpickler, restricted to plain data."""

    def find_class(self, module: str, name: str) -> type:
        stand_in = KNOWN.get((module, name))
        if stand_in is None:
            raise RefusedError(f"the global {f'{module}.{name}'!a}"[:80])
        return stand_in

    def _setitem(self: Any) -> None:
        self._check_keys(self.stack[-2:-1])
        pickle._Unpickler.load_setitem(self)  # type: ignore[attr-defined]

    def _setitems(self: Any) -> None:
        self._check_keys(self.stack[::2])  # after the mark: key, value, key, value, ...
        pickle._Unpickler.load_setitems(self)  # type: ignore[attr-defined]

    def _check_keys(self, keys: list[object]) -> None:
        # The hash of deeply nested tuples overflows the C stack, so keys must be strings.
        if not all(type(key) in (bytes, str) for key in keys):
            raise RefusedError("a key that is not a string")

    dispatch: ClassVar[Any] = {
        **{code[0]: pickle._Unpickler.dispatch[code[0]] for code in OPCODES},
        pickle.SETITEM[0]: _setitem,
        pickle.SETITEMS[0]: _setitems,
    }


def read_pickle(file: Path) -> dict[str, Any]:
    """Read the dict in a pickle: keys as strings, arrays as numpy arrays, byte strings as bytes."""
    try:
        if os.path.getsize(file) > LIMIT:
            raise HoldfastError(
                f"{file}: larger than {LIMIT} bytes, unlike any CIFAR file; delete it and download it again"
            )
        content = _PlainUnpickler(io.BytesIO(file.read_bytes()), encoding="bytes").load()
        if type(content) is not dict:
            raise RefusedError(f"a {type(content).__name__} where a dict should be")
    except HoldfastError:
        raise
    except RefusedError as error:
        raise HoldfastError(
            f"{file}: refused, since it contains {error}, which no CIFAR file does; delete it and download it again"
        ) from error
    except Exception as error:  # a damaged pickle can raise anything
        raise HoldfastError(
            f"{file}: not a complete pickle ({type(error).__name__}); delete it and download it again"
        ) from error
    by_name = {key.decode("latin1") if isinstance(key, bytes) else key: v for key, v in content.items()}
    return {key: v.value if type(v) is _Array else v for key, v in by_name.items()}
