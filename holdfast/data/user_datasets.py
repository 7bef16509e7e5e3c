"""Your own data in another library's data set: a torch ``Dataset`` or a Hugging Face ``Dataset``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from holdfast.core.errors import HoldfastError, closest, unknown
from holdfast.data.arrays import numbered
from holdfast.data.dataset import DataSet
from holdfast.data.given_clients import owners_of_tests
from holdfast.data.text_columns import continued_texts, labelled_texts
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
    text: str | None = None,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> DataSet:
    """Make a data set from a Hugging Face ``Dataset`` or ``DatasetDict`` of images, tables or texts.

    Args:
        dataset: A ``Dataset``, or a ``DatasetDict`` with ``train`` and, optionally, ``test`` or ``validation``.
        test: A ``Dataset`` to test on; without any, a fixed share of every class is held out.
        image: The column of the inputs; or several, such as ``["input_ids", "attention_mask"]``, which reach the model
            as arguments with these names.
        label: The column of the labels.
        client: The column that names each sample's client, for data that is already federated.
        text: The column of texts, in place of ``image``. With ``predict="next-token"`` or ``"next-character"`` the data
            set is that of ``from_text``, and needs no labels; otherwise it predicts the label of every text from its
            last ``length`` tokens, 80 by default. ``tokenizer`` and ``vocabulary`` are those of ``from_text``.
        columns: Columns of numbers, in place of ``image``: a sample is one row of them.
        options: Those of ``from_arrays`` or ``from_text``.

    Returns:
        The checked data set.
    """
    for part in (dataset, test):
        if isinstance(part, str):
            raise HoldfastError(
                f"from_huggingface needs a Dataset, not the name {part!r}: load it with datasets.load_dataset({part!r})"
            )
    if isinstance(dataset, Mapping):
        if "train" not in dataset:
            raise unknown("split", "train", dataset.keys(), "of the data set")
        held = next((dataset[part] for part in ("test", "validation", "valid") if part in dataset), None)
        dataset, test = dataset["train"], held if test is None else test
    predicts = text is not None and "predict" in options
    inputs = [text] if text is not None else _names("image", image) if columns is None else _names("columns", columns)
    for part in (dataset,) if test is None else (dataset, test):
        for column in (*inputs, None if predicts else label, client if part is dataset else None):
            if column is not None and column not in part.column_names:
                raise _unknown_column(column, part.column_names)
    groups = None if client is None else list(dataset[client])
    test_groups = None if client is None or test is None or client not in test.column_names else list(test[client])
    if text is not None and predicts:
        texts, held = list(dataset[text]), None if test is None else list(test[text])
        return continued_texts(texts, held, groups, test_groups, {"name": "huggingface", **options})
    names = getattr((getattr(dataset, "features", None) or {}).get(label), "names", None)
    settings = {"name": "huggingface", "classes": names, "groups": groups, **options}
    if text is not None:
        held_texts = (None, None) if test is None else (list(test[text]), list(test[label]))
        data = labelled_texts(list(dataset[text]), list(dataset[label]), *held_texts, **settings)
    else:
        read = (
            partial(_read, image=image, label=label)
            if columns is None
            else partial(_table, columns=inputs, label=label)
        )
        x, y = read("the data set", dataset)
        test_x, test_y = (None, None) if test is None else read("the test set", test)
        data = from_arrays(x, y, test_x, test_y, **settings)
    return _with_test_clients(data, test_groups)


def _unknown_column(column: str, known: Sequence[str]) -> HoldfastError:
    """Return the error for a column that is not there; who has named none may not know what to name."""
    if column in ("image", "label") and not closest(column, known):
        what = "the inputs in image, columns or text" if column == "image" else "the labels in label"
        return HoldfastError(f"the data set has no column {column!r}: name {what}; known: {', '.join(sorted(known))}")
    return unknown("column", column, known, "of the data set")


def _with_test_clients(data: DataSet, test_groups: list[Any] | None) -> DataSet:
    """Add the client of every test sample."""
    if test_groups is None:
        return data
    places, names = numbered("test clients", test_groups)
    numbers = {name: i for i, name in enumerate(data.clients)}
    return replace(data, test_groups=owners_of_tests([names[i] for i in places], numbers, data.name))


def _names(what: str, columns: str | Sequence[str]) -> list[str]:
    """Return the names of columns, and refuse anything else."""
    found = [columns] if isinstance(columns, str) else list(columns)
    if not found or not all(isinstance(column, str) for column in found):
        raise HoldfastError(f"{what} must be the name of a column, or several of them, not {columns!r}; name columns")
    return found


def _table(what: str, dataset: Any, columns: Sequence[str], label: str) -> tuple[np.ndarray, list[Any]]:
    """Return rows of numbers, one column each, and the labels."""
    values = [np.asarray(list(dataset[column])) for column in columns]
    for column, found in zip(columns, values, strict=True):
        if found.ndim != 1 or found.dtype.kind not in "biuf":
            raise HoldfastError(
                f"column {column!r} of {what} must have one number per row, not {found.dtype} {list(found.shape)}; "
                "leave it out, or use holdfast.from_dataframe(dataset, ...), which reads categories too"
            )
    return np.stack(values, 1).astype(np.float32), list(dataset[label])


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
