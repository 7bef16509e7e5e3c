"""Inputs as a user has them, turned into tensors as the training data is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.data.arrays import from_numpy, number_array
from holdfast.data.table import Table, as_frame, frame_table
from holdfast.data.table_encoding import CODES, TableEncoding, encode
from holdfast.runs.model_facts import DICT, TENSOR, InputFacts, ModelFacts

BRIGHTEST = 1.5  # of pixels in [0, 1], with room for what scaling an image may add


def stored_inputs(x: Any, facts: ModelFacts) -> list[Tensor]:
    """Convert and check inputs.

    Images may lack their only channel or have their channels last. Where the model was trained on bytes, whole numbers
    from 0 to 255 are pixels as well, and other numbers are pixels in [0, 1].

    Args:
        x: Samples: an array, a tensor or a list, or a tuple or dictionary of these if the model takes several. A model
            that was trained on a table also takes raw rows, in a table or a pandas frame.
        facts: What the model was trained on.

    Returns:
        The tensors of the samples, in the order of ``facts.inputs``.
    """
    if facts.encoding is not None:
        x = _encoded(x, facts.encoding)
    if facts.form == TENSOR:
        return [_stored("x", _single(x), facts.inputs[0])]
    found = [_stored(f"x[{name!r}]", v, i) for name, v, i in _pieces(x, facts)]
    if len({len(t) for t in found}) > 1:
        lengths = ", ".join(str(len(t)) for t in found)
        raise HoldfastError(f"the inputs have {lengths} samples; give as many of each")
    return found


def _encoded(x: Any, encoding: TableEncoding) -> Any:
    """Encode raw rows; numbers are taken as already encoded, and rows in another form are an error."""
    if isinstance(x, Table):
        return encode(x, encoding)
    frame = as_frame(x)
    if frame is not None:
        return encode(frame_table("the frame", frame), encoding)
    encoded = encoding.categories == CODES if isinstance(x, Mapping) else isinstance(x, Tensor) or _has_numbers(x)
    if not encoded:
        raise HoldfastError(
            f"the model was trained on a table, and x is a {type(x).__name__}: give raw rows as a frame of pandas, "
            "such as pandas.DataFrame([row])"
        )
    return x


def _has_numbers(x: Any) -> bool:
    try:
        return np.asarray(x).dtype.kind in "biuf"
    except ValueError:  # rows of different lengths, which are refused later
        return True


def _single(x: Any) -> Any:
    """Refuse a dictionary where one array is expected."""
    if isinstance(x, Mapping):
        keys = ", ".join(map(str, x))
        raise HoldfastError(
            f"x has the keys {keys}, but the model takes one array: give that alone, or call it x in a .npz file"
        )
    return x


def _pieces(x: Any, facts: ModelFacts) -> list[tuple[Any, Any, InputFacts]]:
    """Return the inputs one by one, each with its name and its facts."""
    names = [i.name for i in facts.inputs]
    if facts.form == DICT:
        if not isinstance(x, Mapping) or {*x} != {*names}:
            given = f"the keys {', '.join(map(str, x))}" if isinstance(x, Mapping) else f"the type {type(x).__name__}"
            raise HoldfastError(f"x has {given}, expected a dictionary with the keys {', '.join(names)}; give that")
        return [(i.name, x[i.name], i) for i in facts.inputs]
    x = tuple(x.values()) if isinstance(x, Mapping) else x
    if not isinstance(x, tuple | list) or len(x) != len(names):
        raise HoldfastError(f"x must be a tuple of {len(names)} inputs, as in the training data; give that")
    return [(number, v, i) for number, (v, i) in enumerate(zip(x, facts.inputs, strict=True))]


def _stored(what: str, values: Any, expected: InputFacts) -> Tensor:
    x = _like(what, _tensor(what, values), expected.shape)
    if len(x) == 0:
        raise HoldfastError(f"{what} is empty; give at least one sample")
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        bad = (~torch.isfinite(x.flatten(1)).all(1)).nonzero()[0, 0]
        raise HoldfastError(f"{what} has NaN or infinite numbers, first in sample {int(bad)}; clean it")
    return _typed(what, x, expected)


def _tensor(what: str, values: Any) -> Tensor:
    if isinstance(values, Tensor):
        x = values.detach()
    else:
        array = number_array(what, values)
        kind: Any = np.uint8 if array.dtype == np.uint8 else np.int64 if array.dtype.kind in "biu" else np.float64
        kind = array.dtype.newbyteorder("=") if array.dtype in (np.float16, np.float32) else kind
        x = from_numpy(array, np.dtype(kind))
    if x.is_complex():
        raise HoldfastError(f"{what} must be real numbers, not {x.dtype}; convert it first")
    return x


def _like(what: str, x: Tensor, shape: list[int]) -> Tensor:
    """Bring samples into a shape: as they are, with an only channel added, or with the channels moved to the front."""
    own = list(x.shape[1:])
    if x.dim() and own == shape:
        return x
    if len(shape) == 3 and own == [*shape[1:], shape[0]]:
        return x.permute(0, 3, 1, 2)
    if len(shape) == 3 and shape[0] == 1 and own == shape[1:]:
        return x[:, None]
    forms = [["n", *shape]]
    forms += [["n", *shape[1:]]] if len(shape) == 3 and shape[0] == 1 else []
    forms += [["n", *shape[1:], shape[0]]] if len(shape) == 3 else []
    texts = [f"[{', '.join(map(str, form))}]" for form in forms]
    expected = " or ".join([", ".join(texts[:-1]), texts[-1]] if texts[1:] else texts)
    single = list(x.shape) in [form[1:] for form in forms]
    remedy = f"give one sample as {what}[None]" if single else "give samples like those of the training data"
    raise HoldfastError(f"{what} has shape {list(x.shape)}, expected {expected}: {remedy}")


def _typed(what: str, x: Tensor, expected: InputFacts) -> Tensor:
    """Bring samples into the type of the training data, unless that would change their scale."""
    if expected.kind == torch.uint8:
        return _pixels(what, x)
    if not expected.kind.is_floating_point:
        if x.is_floating_point():
            raise HoldfastError(f"{what} has {x.dtype} numbers, expected whole numbers; convert it first")
        return x.to(expected.kind)
    if x.dtype == torch.uint8 and x.dim() > 2:
        raise HoldfastError(
            f"{what} is uint8, but the training data was {expected.dtype}: convert it to the same numbers"
        )
    return x.to(expected.kind)


def _pixels(what: str, x: Tensor) -> Tensor:
    """Return bytes, or numbers in [0, 1]."""
    if x.dtype == torch.uint8:
        return x
    low, high = float(x.min()), float(x.max())
    if not x.is_floating_point():
        if low < 0 or high > 255:
            raise HoldfastError(f"{what} has pixels from {low:g} to {high:g}, expected 0 to 255; scale it")
        return x.to(torch.uint8)
    if high > BRIGHTEST:
        raise HoldfastError(
            f"{what} has {x.dtype} pixels up to {high:g}, expected numbers in [0, 1] or uint8; convert it to uint8, or "
            "divide it by 255"
        )
    return x
