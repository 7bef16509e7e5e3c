"""Your own data as numpy arrays, torch tensors or lists, in one piece or already divided among clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.data.arrays import are_booleans, are_strings, labels, numbered, samples, target_array
from holdfast.data.dataset import DataSet
from holdfast.data.given_clients import check_names
from holdfast.data.normalisation import CHOICES, FEDERATED, OFF, POOLED, PUBLISHED
from holdfast.data.packed_inputs import InputField, is_several, pack
from holdfast.data.prepare import channelled, hold_out_test, moments
from holdfast.data.targets import output_names, stored_targets, task_of, whole
from holdfast.tasks.task import Task

Inputs = tuple[Tensor, tuple[InputField, ...]]  # as they are stored, and their fields if a sample is several arrays


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
    share: float = 0.2,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    normalise: bool | str = True,
    task: str | Task | None = None,
) -> DataSet:
    """Make a data set from numpy arrays, torch tensors or lists.

    By default inputs are normalised: the model is trained on ``(x - mean) / std``, so that a module called directly
    expects such inputs. ``Result.predict`` takes raw inputs and normalises them, and so do exported models.

    Args:
        x: Inputs of any shape [n, ...]: images [n, channels, height, width], rows [n, features], tokens [n, length],
            or several arrays: a dictionary by the names of ``forward``'s arguments, or a tuple in their order. Your own
            module gets them in this shape, and integers as integers if it takes them; a named network gets numbers.
        y: Targets: a class per sample, as integers from 0, strings or booleans; numbers to predict; 0 or 1 for each of
            several labels, [n, labels]; or the next token at every position, [n, length].
        test_x: Test inputs; without them a fixed share of every class is held out.
        test_y: Test targets.
        groups: The client of every training sample, for data that is already federated.
        classes: The names of the classes in the order of their labels; or of labels, numbers or tokens.
        name: The name of the data set.
        channels: Where images have their channels: ``first``, ``last`` or ``auto``. The latter means last where the
            last axis is 1 or 3 and the second is not, else first.
        share: The share of every class to hold out where there is no test set.
        mean: The mean per channel or feature, if you know it.
        std: The standard deviation per channel or feature.
        normalise: Where mean and standard deviation come from: ``published`` (you give them), ``federated`` (from sums
            of the clients' training samples, when the data is dealt), ``pooled`` (of all training samples at once,
            which only a simulation can do) or ``off``. True is ``published`` if you give them, else ``federated``;
            False is ``off``. Several arrays, and integers that the model takes as they are, are never normalised.
        task: What is predicted: ``classification``, ``multilabel``, ``regression`` or ``next-token``; by default it
            follows from ``y``.

    Returns:
        The checked data set.

    >>> data = from_arrays([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1], groups=["ann", "bob", "ann", "bob"])
    >>> data.y.tolist(), data.test_y.tolist(), data.classes
    ([0, 1], [0, 1], ('0', '1'))
    """
    if (test_x is None) != (test_y is None):
        raise HoldfastError("only one of test_x and test_y is given; give both or neither")
    inputs, fields = read_inputs("x", x, channels)
    test_inputs, test_fields = (inputs[:0], fields) if test_x is None else read_inputs("test_x", test_x, channels)
    check_alike("test_x", (test_inputs, test_fields), "x", (inputs, fields))
    kind = task_of(task, y, inputs)
    targets, test_targets, names = read_targets(y, () if test_y is None else test_y, classes, kind)
    _check_length("y", len(targets), "x", len(inputs))
    _check_length("test_y", len(test_targets), "test_x", len(test_inputs))
    data = DataSet(name, inputs, targets, test_inputs, test_targets, names, fields=fields, task=kind)
    if groups is not None:
        ids, clients = numbered("groups", groups)
        _check_length("groups", len(ids), "x", len(inputs))
        data = replace(data, groups=ids, clients=clients)
    if test_x is None:
        data = _with_test_set(data, share)
    choice = normalise_choice(normalise, bool(len(mean) or len(std)))
    if fields:
        return replace(data, normalise=OFF)
    return _normalised(data, choice, tuple(map(float, mean)), tuple(map(float, std)))


def from_clients(
    given: Sequence[tuple[Any, Any]] | Mapping[Any, tuple[Any, Any]] | Callable[[int], tuple[Any, Any]],
    /,
    test: tuple[Any, Any] | None = None,
    *,
    clients: int | None = None,
    **options: Any,
) -> DataSet:
    """Make a data set that is already divided among clients.

    Args:
        given: The inputs and labels of each client, as a list or as a mapping by name. Client ``i`` of the list, or
            of the mapping in its order, is group ``i``; it may be empty. Clients of a list are called by their number.
            Or a function that returns the inputs and labels of client ``i``, and the same whenever it is called:
            clients are then made when a round draws them, while the round before it is trained, and none is kept.
        test: The inputs and labels of a common test set; without it a fixed share of every class is held out. Clients
            that a function makes need it.
        clients: The number of clients that a function makes.
        options: Those of ``from_arrays``, except that a function makes no ``groups``; it may have ``threads``, how many
            clients are made at the same time. ``federated`` statistics are those of 100 clients then.

    Returns:
        The checked data set.
    """
    if callable(given):
        from holdfast.data.on_demand import clients_on_demand  # which imports this module

        return clients_on_demand(given, test, clients, **options)
    if clients not in (None, len(given)):
        raise HoldfastError(f"there are {len(given)} clients, not {clients}: leave out clients")
    pairs = list(given.items() if isinstance(given, Mapping) else enumerate(given))
    names = tuple(str(who) for who, _ in pairs)
    check_names("clients", names)
    channels = options.pop("channels", "auto")
    xs: list[Tensor] = []
    ys: list[np.ndarray] = []
    groups: list[int] = []
    for number, (who, (x, y)) in enumerate(pairs):
        _check_length(f"y of client {who}", len(y), f"x of client {who}", len(x))
        if len(x):
            part = samples(f"x of client {who}", x, channels)
            check_alike(f"x of client {who}", (part, ()), "the first", (xs[0] if xs else part, ()))
            xs.append(part)
            targets = target_array(f"y of client {who}", y)
            if ys and (targets.dtype.kind == "U") != (ys[0].dtype.kind == "U"):
                raise HoldfastError(
                    f"y of client {who} has {targets.reshape(-1)[0].item()!r}, and that of the first "
                    f"{ys[0].reshape(-1)[0].item()!r}; give values of one type"
                )
            ys.append(targets.reshape(len(x)) if targets.size == len(x) else targets)
            groups += [number] * len(x)
    if not xs:
        raise HoldfastError("no client has a sample; give at least one")
    test_x, test_y = (None, None) if test is None else (samples("test_x", test[0], channels), test[1])
    settings: dict[str, Any] = {"name": "clients", **options, "channels": "first"}
    data = from_arrays(torch.cat(xs), np.concatenate(ys), test_x, test_y, groups=groups, **settings)
    # from_arrays numbers the clients without the empty ones: give every client its place in the list again.
    assert data.groups is not None
    return replace(data, groups=torch.tensor(sorted(set(groups)))[data.groups], clients=names)


def read_targets(
    y: Any, test_y: Any, names: Sequence[str] | None, task: Task
) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Read the targets of training and test samples.

    Args:
        y: Those of the training samples.
        test_y: Those of the test samples; may be empty.
        names: The names of the outputs, if they are given.
        task: What is predicted.

    Returns:
        Both, as the task stores them, and the names of the outputs.
    """
    if task.has_classes:
        return _classes(whole(y), whole(test_y), names)
    own = stored_targets("y", y, task)
    held = stored_targets("test_y", test_y, task) if len(test_y) else own[:0]
    outputs = output_names(torch.cat([own, held]), task, names)
    for what, values in (("y", own), ("test_y", held)):
        task.check(what, values, len(outputs))
    return own, held, outputs


def _classes(y: Any, test_y: Any, classes: Sequence[str] | None) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Return training labels and test labels as numbers, and the class names."""
    if are_strings(y):
        ids, names = numbered("y", y, classes)
        held = numbered("test_y", test_y, names)[0] if len(test_y) else ids[:0]
        return ids, held, names
    classes = ("False", "True") if classes is None and are_booleans(y) else classes
    ids = labels("y", y)
    held = labels("test_y", test_y) if len(test_y) else ids[:0]
    high = int(torch.cat([ids, held]).max()) if len(ids) + len(held) else 0
    if classes is not None and high >= len(classes):
        raise HoldfastError(
            f"a label is {high}, expected 0 to {len(classes) - 1} for {len(classes)} classes; fix y or classes"
        )
    if classes is None and high >= len(ids) + len(held):
        remedy = "number them from 0, or give classes="
        raise HoldfastError(f"a label is {high}, but there are only {len(ids) + len(held)} samples; {remedy}")
    return ids, held, tuple(map(str, range(high + 1) if classes is None else classes))


def read_inputs(what: str, x: Any, channels: str = "auto") -> Inputs:
    """Convert and check the inputs of samples: one array, or several.

    Args:
        what: The name of the inputs, for error messages.
        x: An array, a dictionary of arrays or a tuple of them.
        channels: Where images have their channels, as in ``from_arrays``.

    Returns:
        The inputs as they are stored, and their fields if they are several arrays.
    """
    if not is_several(x):
        return samples(what, x, channels), ()
    if isinstance(x, Mapping):
        return pack(what, {str(name): samples(f"{what}[{name!r}]", value, channels) for name, value in x.items()})
    return pack(what, [samples(f"{what}[{i}]", value, channels) for i, value in enumerate(x)])


def _check_length(what: str, n: int, other: str, expected: int) -> None:
    if n != expected:
        raise HoldfastError(f"{what} has {n} entries and {other} has {expected}; give one label or group per sample")


def check_alike(what: str, inputs: Inputs, other: str, expected: Inputs) -> None:
    """Raise an error if samples differ from others in type or shape.

    Args:
        what: The name of the samples, for the error message.
        inputs: The samples.
        other: The name of those that they are compared with.
        expected: Those.
    """
    (x, fields), (y, others) = inputs, expected
    if fields != others:
        raise HoldfastError(
            f"{other} and {what} differ in the names, types or shapes of their inputs; give both the same"
        )
    if x.shape[1:] != y.shape[1:] or x.dtype != y.dtype:
        mine, theirs = (f"{t.dtype} {list(t.shape[1:])}" for t in (x, y))
        raise HoldfastError(f"{what} has samples of {mine} and {other} of {theirs}; give all the same type and shape")


def _with_test_set(data: DataSet, share: float) -> DataSet:
    if not 0 < share < 1:
        raise HoldfastError(f"share must be in (0, 1), not {share}; use one such as 0.2")
    kept, held = hold_out_test(torch.from_numpy(data.task.strata(data.y.numpy())[0]), share)
    if not len(held):
        raise HoldfastError("one sample per class leaves nothing to test on; give test_x and test_y")
    groups = None if data.groups is None else data.groups[kept]
    x, y = data.x, data.y
    return replace(data, x=x[kept], y=y[kept], test_x=x[held], test_y=y[held], groups=groups)


def normalise_choice(normalise: bool | str, given: bool) -> str:
    """Return how inputs are normalised.

    Args:
        normalise: What the user asks for: a choice, or True or False.
        given: Whether the user gives mean and standard deviation.

    Returns:
        One of the choices.
    """
    if isinstance(normalise, bool):
        return (PUBLISHED if given else FEDERATED) if normalise else OFF
    if normalise not in CHOICES:
        raise HoldfastError(f"normalise must be one of {', '.join(CHOICES)}, not {normalise}; use one of them")
    if given and normalise in (FEDERATED, POOLED):
        raise HoldfastError(
            f"normalise={normalise} computes mean and std, but they are given; leave out one or the other"
        )
    if normalise == PUBLISHED and not given:
        raise HoldfastError("normalise=published needs mean and std; give both, or use normalise=federated")
    return normalise


def _normalised(data: DataSet, choice: str, mean: tuple[float, ...], std: tuple[float, ...]) -> DataSet:
    if choice in (OFF, FEDERATED):
        return replace(data, normalise=choice)
    x = channelled(data.x)
    if choice == POOLED:
        mean, std = moments(x)
    if not len(mean) == len(std) == x.shape[1] or not all(s > 0 for s in std):
        channels = x.shape[1]
        raise HoldfastError(
            f"mean and std are {list(mean)} and {list(std)}, expected {channels} numbers each, one per channel or "
            "feature, with std above 0; leave both out to compute them"
        )
    return replace(data, mean=mean, std=std, normalise=choice)
