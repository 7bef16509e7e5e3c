"""Turn a user's arrays, tensors and lists into checked tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError, unknown

CHUNK = 4096


def samples(what: str, values: Any, channels: str = "auto") -> Tensor:
    """Convert and check inputs.

    Args:
        what: The name of the inputs, for error messages.
        values: Images, rows of features, tokens or anything else with a sample axis. Grey images of uint8 [n, height,
            width] get a channel axis; other arrays keep their shape.
        channels: Where images have their channels: ``first``, ``last`` or ``auto``. The latter means last where the
            last axis is 1 or 3 and the second is not, else first.

    Returns:
        Finite numbers: uint8 for images, int64 for other integers, else float32.
    """
    x = _tensor(what, values)
    if len(x) == 0:
        raise HoldfastError(f"{what} is empty; give at least one sample")
    if x.dim() == 3 and (x.dtype == torch.uint8 or channels != "auto"):
        x = x[:, None]
    elif x.dim() == 4 and (channels == "last" or (channels == "auto" and _looks_last(x))):
        x = x.permute(0, 3, 1, 2)
    if x.dim() < 2:
        raise HoldfastError(
            f"{what} must have at least two axes, such as [n, features], not {list(x.shape)}; reshape it"
        )
    if x.numel() == 0:
        raise HoldfastError(
            f"{what} has shape {list(x.shape)}, so its samples are empty; give samples with at least one number"
        )
    kept = (x.dtype == torch.uint8 and x.dim() == 4) or x.dtype == torch.int64
    x = x.contiguous() if kept else x.float().contiguous()
    _check_finite(what, x)
    return x


def _looks_last(x: Tensor) -> bool:
    return x.shape[3] in (1, 3) and x.shape[1] not in (1, 3)


def _tensor(what: str, values: Any) -> Tensor:
    if isinstance(values, Tensor):
        x = values.detach().cpu()
        if x.dtype in (torch.int8, torch.int16, torch.int32):
            x = x.long()
    else:
        array = number_array(what, values)
        native = array.dtype.newbyteorder("=") if array.dtype.kind == "f" else np.dtype(_whole_kind(array.dtype))
        x = from_numpy(array, native)
    if x.is_complex() or x.dim() == 0:
        raise HoldfastError(f"{what} must be an array of real numbers, not {x.dtype} {list(x.shape)}; convert it first")
    return x


def number_array(what: str, values: Any) -> np.ndarray:
    """Return a user's values as an array of numbers of whatever type."""
    try:
        array = np.asarray(values)
    except ValueError as error:  # raised for samples of different shapes
        raise HoldfastError(f"{what} has samples of different shapes; give all the same shape") from error
    if array.dtype.kind not in "biuf":
        remedy = (
            "use from_dataframe, which reads other columns too" if hasattr(values, "columns") else "convert it first"
        )
        raise HoldfastError(f"{what} must be numbers, not {array.dtype}; {remedy}")
    return array


def from_numpy(array: np.ndarray, kind: np.dtype) -> Tensor:
    """Return an array as a tensor; torch supports neither negative strides nor read-only memory, nor every type."""
    return torch.from_numpy(np.require(array.astype(kind, copy=False), requirements=["C", "W"]))


def _whole_kind(dtype: np.dtype) -> type:
    """Return the type in which integers and booleans are stored; the largest integers become real numbers."""
    if dtype == np.uint8:
        return np.uint8
    return np.float32 if dtype.kind == "b" or dtype == np.uint64 else np.int64


def _check_finite(what: str, x: Tensor) -> None:
    if not x.is_floating_point():
        return
    bad, first = 0, -1
    for start in range(0, len(x), CHUNK):
        broken = ~torch.isfinite(x[start : start + CHUNK]).flatten(1)
        if broken.any():
            bad += int(broken.sum())
            first = first if first >= 0 else start + int(broken.any(1).nonzero()[0])
    if bad:
        numbers = "number" if bad == 1 else "numbers"
        raise HoldfastError(f"{what} has {bad} NaN or infinite {numbers}, first in sample {first}; clean it")


def numbered(what: str, values: Any, names: Sequence[Any] | None = None) -> tuple[Tensor, tuple[str, ...]]:
    """Number values 0, 1, ... in sorted order, or in the order of ``names``.

    Args:
        what: The name of the values, for error messages.
        values: One value per sample: strings or numbers.
        names: The values that may occur; any other is an error.

    Returns:
        The number of every value, and the names in order.

    >>> numbered("clients", ["b", "a", "b"])
    (tensor([1, 0, 1]), ('a', 'b'))
    """
    array = _column(what, values)
    distinct, inverse = np.unique(array, return_inverse=True)
    ids = torch.from_numpy(inverse.reshape(-1).astype(np.int64))
    texts = tuple(as_name(value) for value in distinct.tolist())
    if names is None:
        return ids, texts
    known = {str(name): i for i, name in enumerate(names)}
    others = [text for text in texts if text not in known]
    if others:
        raise unknown("class", others[0], known, f"in {what}")
    return torch.tensor([known[text] for text in texts])[ids], tuple(known)


def as_name(value: Any) -> str:
    """Return a value as a name; a whole number has no point."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def labels(what: str, values: Any) -> Tensor:
    """Convert and check labels: int64 [n], at least 0; False and True are 0 and 1."""
    array = _column(what, values)
    if array.dtype.kind not in "biu":
        raise HoldfastError(f"{what} must be integers 0, 1, 2, ..., not {array.dtype}; convert them first")
    if len(array) and (array.min() < 0 or array.max() > np.iinfo(np.int64).max):
        raise HoldfastError(
            f"{what} must be integers from 0 to 2**63 - 1, not {array.min()} to {array.max()}; number them from 0"
        )
    return torch.from_numpy(array.astype(np.int64))


def are_strings(values: Any) -> bool:
    """Tell whether labels are strings, which ``numbered`` turns into numbers."""
    return _column("y", values).dtype.kind == "U"


def are_booleans(values: Any) -> bool:
    """Tell whether labels are booleans: the classes False and True."""
    return _column("y", values).dtype.kind == "b"


def is_missing(value: object) -> bool:
    """Tell whether a value stands for nothing: None, NaN, or what pandas puts in its place."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def target_array(what: str, values: Any) -> np.ndarray:
    """Return targets or groups as an array; objects, as pandas has them, become strings, booleans or numbers."""
    try:
        array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    except ValueError as error:
        raise HoldfastError(
            f"{what} must be one value per sample, but its entries differ in shape; give a flat list"
        ) from error
    if array.dtype.kind not in "OTf" or array.ndim == 0:
        return array
    _refuse_missing(what, array)
    return array if array.dtype.kind == "f" else _of_one_type(what, array.reshape(-1)).reshape(array.shape)


def _column(what: str, values: Any) -> np.ndarray:
    """Return one value per sample; the shape [n, 1] that some libraries produce is accepted too."""
    array = target_array(what, values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "biufU":
        raise HoldfastError(
            f"{what} must be one value per sample, not {array.dtype} {list(array.shape)}; give a flat list"
        )
    return array


def _refuse_missing(what: str, array: np.ndarray) -> None:
    rows = array.reshape(len(array), -1) if len(array) else array
    missing = np.isnan(rows) if array.dtype.kind == "f" else np.vectorize(is_missing, otypes=[bool])(rows)
    if missing.any():
        i = int(missing.any(1).argmax())
        raise HoldfastError(f"{what} has no value in sample {i}; fill it in, or leave the sample out")


def _of_one_type(what: str, array: np.ndarray) -> np.ndarray:
    """Return objects, as pandas stores texts and truths, as an array of strings, booleans or numbers."""
    values = array.tolist()
    for kinds, dtype in (((str,), str), ((bool, np.bool_), bool), ((int, float, np.number), None)):
        fits = [isinstance(v, kinds) and (bool in kinds or not isinstance(v, bool)) for v in values]
        if all(fits):
            return np.array(values, dtype)
        if any(fits):
            other = values[fits.index(False)]
            one = values[fits.index(True)]
            raise HoldfastError(f"{what} has both {one!r} and {other!r}; give values of one type")
    return array
