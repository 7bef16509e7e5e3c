"""Your own data in another library's data set: a torch ``Dataset`` or a Hugging Face ``Dataset``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from holdfast.core.errors import HoldfastError, unknown
from holdfast.data.dataset import DataSet
from holdfast.data.user_arrays import from_arrays

Pairs = Iterable[tuple[Any, Any]]


def from_dataset(dataset: Any, test: Any = None, **options: Any) -> DataSet:
    """Make a data set from any map-style torch ``Dataset``.

    Every sample is read once, now. A random transform is therefore drawn once: leave augmentation to the run.

    Args:
        dataset: (input, label) pairs; inputs are tensors, arrays or PIL images.
        test: Another such data set to test on; without it a fixed share of every class is held out.
        options: Those of ``from_arrays``.

    Returns:
        The checked data set.
    """
    x, y = _stacked("the data set", _pairs(dataset))
    test_x, test_y = (None, None) if test is None else _stacked("the test set", _pairs(test))
    return from_arrays(x, y, test_x, test_y, **{"name": "dataset", **options})


def from_huggingface(
    dataset: Any,
    test: Any = None,
    *,
    image: str | Sequence[str] = "image",
    label: str = "label",
    client: str | None = None,
    **options: Any,
) -> DataSet:
    """Make a data set from a Hugging Face ``Dataset`` or ``DatasetDict``.

    Args:
        dataset: A ``Dataset``, or a ``DatasetDict`` with ``train`` and, optionally, ``test`` or ``validation``.
        test: A ``Dataset`` to test on; without any, a fixed share of every class is held out.
        image: The column of the inputs; or several, such as ``["input_ids", "attention_mask"]``, which reach the model
            as arguments with these names.
        label: The column of the labels.
        client: The column that names each sample's client, for data that is already federated.
        options: Those of ``from_arrays``.

    Returns:
        The checked data set.
    """
    if isinstance(dataset, Mapping):
        if "train" not in dataset:
            raise unknown("split", "train", dataset.keys(), "of the data set")
        held = next((dataset[part] for part in ("test", "validation", "valid") if part in dataset), None)
        dataset, test = dataset["train"], held if test is None else test
    inputs = [image] if isinstance(image, str) else list(image)
    if not inputs or not all(isinstance(column, str) for column in inputs):
        raise HoldfastError(f"image must be the name of a column, or several of them, not {image!r}; name columns")
    for part in (dataset,) if test is None else (dataset, test):
        for column in (*inputs, label, client if part is dataset else None):
            if column is not None and column not in part.column_names:
                raise unknown("column", column, part.column_names, "of the data set")
    x, y = _read("the data set", dataset, image, label)
    test_x, test_y = (None, None) if test is None else _read("the test set", test, image, label)
    names = getattr((getattr(dataset, "features", None) or {}).get(label), "names", None)
    groups = None if client is None else list(dataset[client])
    settings = {"name": "huggingface", "classes": names, "groups": groups, **options}
    return from_arrays(x, y, test_x, test_y, **settings)


def _pairs(dataset: Any) -> Iterator[tuple[Any, Any]]:
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        kind = type(dataset).__name__
        raise HoldfastError(f"a {kind} has no length or no numbered samples; collect its samples into arrays first")
    for i in range(len(dataset)):
        item = dataset[i]
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise HoldfastError(
                f"sample {i} of the data set must be a pair (input, label), not a {type(item).__name__}; "
                "return two values"
            )
        yield item[0], item[1]


def _read(what: str, dataset: Any, image: str | Sequence[str], label: str) -> tuple[Any, list[Any]]:
    """Return the inputs and labels of a data set; several columns of inputs by name."""
    if isinstance(image, str):
        return _stacked(what, _columns(dataset, image, label))
    found = {column: _stacked(f"column {column!r} of {what}", _columns(dataset, column, label)) for column in image}
    return {column: x for column, (x, _) in found.items()}, next(iter(found.values()))[1]


def _columns(dataset: Any, image: str, label: str) -> Iterator[tuple[Any, Any]]:
    for row in dataset:
        yield row[image], row[label]


def _stacked(what: str, pairs: Pairs) -> tuple[np.ndarray, list[Any]]:
    """Return all inputs in one array and all labels in a list; grey images among coloured ones get three channels."""
    xs: list[np.ndarray] = []
    ys: list[Any] = []
    for i, (x, y) in enumerate(pairs):
        xs.append(_pixels(f"sample {i} of {what}", x))
        ys.append(y.item() if hasattr(y, "item") and getattr(y, "size", 1) != 0 and np.ndim(y) == 0 else y)
    if not xs:
        raise HoldfastError(f"{what} is empty; give at least one sample")
    colour = next((x.shape for x in xs if x.ndim == 3 and x.shape[-1] == 3), None)
    for i, x in enumerate(xs):
        if colour and x.shape == colour[:2]:
            xs[i] = np.repeat(x[..., None], 3, axis=-1)
        if xs[i].shape != xs[0].shape:
            shapes = f"shape {list(xs[i].shape)} and the first {list(xs[0].shape)}"
            raise HoldfastError(f"sample {i} of {what} has {shapes}; give all the same shape")
    return np.stack(xs), ys


def _pixels(what: str, x: Any) -> np.ndarray:
    if isinstance(x, Tensor):
        x = x.detach().cpu().numpy()
    elif hasattr(x, "convert") and getattr(x, "mode", "") not in ("L", "RGB"):
        x = x.convert("RGB")  # a PIL image with a palette, an alpha channel, ...
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise HoldfastError(f"{what} is not an array; give tensors, arrays or PIL images") from error
    if array.dtype.kind not in "biuf":
        raise HoldfastError(f"{what} must be numbers, not {type(x).__name__}; give tensors, arrays or PIL images")
    return array
