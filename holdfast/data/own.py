"""The user's own data: arrays, tensors, a torch ``Dataset``, a Hugging Face ``datasets.Dataset``, or one array per client.

Each function gives a checked ``DataSet``. Without a test set, a fixed stratified fifth is held out. Without ``mean``
and ``std`` the channel statistics of the training part are computed; ``normalise=False`` leaves the numbers alone.
A folder of images is the source ``folder('path')``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.data.arrays import labels, numbered, samples, words
from holdfast.data.dataset import DataSet
from holdfast.data.prepare import hold_out, moments
from holdfast.errors import HoldfastError, unknown


def from_arrays(
    x: Any,
    y: Any,
    test_x: Any = None,
    test_y: Any = None,
    *,
    groups: Any = None,
    classes: Sequence[str] | None = None,
    name: str = "arrays",
    channels: str = "auto",
    test: float = 0.2,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    normalise: bool = True,
) -> DataSet:
    """Samples and labels in numpy arrays, torch tensors or lists.

    ``groups`` names the client of every training sample, for data that is already federated. Labels are integers
    from 0 on, or strings. ``channels`` is the place of the channel axis of images: see ``arrays.samples``.

    >>> data = from_arrays([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1], groups=["ann", "bob", "ann", "bob"])
    >>> data.y.tolist(), data.test_y.tolist(), data.classes
    ([0, 1], [0, 1], ('0', '1'))
    """
    data = _paired(x, y, test_x, test_y, channels, classes, name)
    if groups is not None:
        ids, _ = numbered("groups", groups)
        _same_length("x", data.x, "groups", ids)
        data = replace(data, groups=ids)
    if test_x is None:
        data = _held_out(data, test)
    return _normalised(data, tuple(mean), tuple(std), normalise)


def from_clients(
    clients: Sequence[tuple[Any, Any]] | Mapping[Any, tuple[Any, Any]],
    test: tuple[Any, Any] | None = None,
    **options: Any,
) -> DataSet:
    """Data that is already federated: the samples and labels of each client, and perhaps a common test set.

    Client ``i`` of the list (or of the mapping, in its order) is group ``i``. A client may be empty. ``options``
    are those of ``from_arrays``; its ``test`` share is called ``share`` here.
    """
    pairs = list(clients.items()) if isinstance(clients, Mapping) else list(enumerate(clients))
    channels = options.get("channels", "auto")
    xs: list[Tensor] = []
    ys: list[np.ndarray] = []
    ids: list[int] = []
    for number, (who, pair) in enumerate(pairs):
        if len(pair) != 2:
            raise HoldfastError(f"client {who} must be a pair (x, y), not {len(pair)} things")
        if len(pair[0]) == 0 and len(pair[1]) == 0:
            continue
        part = samples(f"x of client {who}", pair[0], channels)
        _same_length(f"x of client {who}", part, f"y of client {who}", pair[1])
        if xs and (part.shape[1:] != xs[0].shape[1:] or part.dtype != xs[0].dtype):
            shapes = f"{part.dtype} {list(part.shape[1:])}, the first {xs[0].dtype} {list(xs[0].shape[1:])}"
            raise HoldfastError(f"client {who} holds samples of {shapes}; make them equal")
        xs.append(part)
        ys.append(np.asarray(pair[1]).reshape(len(part)))
        ids += [number] * len(part)
    if not xs:
        raise HoldfastError("no client has a sample; give at least one")
    test_x, test_y = test if test is not None else (None, None)
    share = options.pop("share", 0.2)
    settings = {"name": "clients", **options, "channels": "first", "test": share}
    if test_x is not None:
        test_x = samples("test_x", test_x, channels)
    return from_arrays(torch.cat(xs), np.concatenate(ys), test_x, test_y, groups=ids, **settings)


def from_dataset(dataset: Any, test: Any = None, **options: Any) -> DataSet:
    """Any map-style torch ``Dataset`` of (input, label) pairs; inputs are tensors, arrays or PIL images.

    Every sample is read once, now: a random transform is drawn once, so leave augmentation to the run.
    ``options`` are those of ``from_arrays``; its ``test`` share is called ``share`` here.
    """
    x, y = _stacked("the data set", _items(dataset))
    test_x, test_y = _stacked("the test set", _items(test)) if test is not None else (None, None)
    share = options.pop("share", 0.2)
    return from_arrays(x, y, test_x, test_y, **{"name": "dataset", **options, "test": share})


def from_huggingface(
    dataset: Any, test: Any = None, *, image: str = "image", label: str = "label", client: str = "", **options: Any
) -> DataSet:
    """A Hugging Face ``Dataset``, or a ``DatasetDict`` with ``train`` and perhaps ``test`` or ``validation``.

    ``image`` and ``label`` are the columns to read; ``client`` is the one that names each sample's client.
    ``options`` are those of ``from_arrays``; its ``test`` share is called ``share`` here.
    """
    if isinstance(dataset, Mapping):
        if "train" not in dataset:
            raise unknown("split of the data set", "train", dataset.keys())
        held = next((dataset[part] for part in ("test", "validation", "valid") if part in dataset), None)
        dataset, test = dataset["train"], test if test is not None else held
    for column in filter(None, (image, label, client)):
        if column not in dataset.column_names:
            raise unknown("column of the data set", column, dataset.column_names)
    rows = ((row[image], row[label]) for row in dataset)
    x, y = _stacked("the data set", rows)
    pairs = None if test is None else ((row[image], row[label]) for row in test)
    test_x, test_y = (None, None) if pairs is None else _stacked("the test set", pairs)
    names = getattr(dataset.features.get(label), "names", None)
    groups = list(dataset[client]) if client else None
    share = options.pop("share", 0.2)
    settings = {"name": "huggingface", "classes": names, "groups": groups, **options, "test": share}
    return from_arrays(x, y, test_x, test_y, **settings)
