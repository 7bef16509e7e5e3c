"""Targets of a user's samples: what task they are for, and how it stores them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.data.arrays import number_array, target_array
from holdfast.data.dataset import DataSet
from holdfast.tasks.classification import Classification
from holdfast.tasks.multilabel import Multilabel
from holdfast.tasks.next_token import NextToken
from holdfast.tasks.regression import Regression
from holdfast.tasks.task import CLASS, LABELS, NUMBERS, TOKENS, Task
from holdfast.tasks.task_names import read_task

FEW = 20  # different whole numbers that may as well be classes


def task_of(task: str | Task | None, y: Any, x: Tensor) -> Task:
    """Return the task that targets are for: the given one, or what they look like.

    Args:
        task: A task or its name, if it is given.
        y: The targets, as the user gave them.
        x: The inputs, as they are stored.

    Returns:
        The task.
    """
    if task is not None:
        return read_task(task) if isinstance(task, str) else task
    array = target_array("y", y)
    kind, columns = array.dtype.kind, array.shape[1] if array.ndim == 2 else 1
    if array.ndim > 2 or kind not in "biuf" or (columns == 1 and kind in "biu"):
        return Classification()
    if columns == 1:
        return Regression() if _clearly_numbers(array) else Classification()
    if kind in "iu" and x.dtype == torch.int64 and tuple(x.shape) == array.shape:
        return NextToken()
    if np.isin(array, (0, 1)).all():
        return Multilabel()
    if kind == "f":
        return Regression()
    raise HoldfastError(
        f'y has {columns} whole numbers per sample, which may be numbers or tokens: give task="regression" or '
        'task="next-token"'
    )


def _clearly_numbers(array: np.ndarray) -> bool:
    """Tell whether real numbers are measurements; a few whole ones may as well be classes, which is an error."""
    distinct = np.unique(array)
    if len(distinct) <= FEW and (distinct == np.floor(distinct)).all():
        raise HoldfastError(
            f'y has real numbers that are all whole, such as {distinct[0]:g}: give task="classification" or '
            'task="regression"'
        )
    return True


def whole(y: Any) -> Any:
    """Return classes that are stored as real numbers as integers; anything else as it is."""
    if not hasattr(y, "dtype") or "float" not in str(y.dtype):
        return y
    array = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    return array.astype(np.int64) if np.isfinite(array).all() and (array == np.floor(array)).all() else y


def stored_targets(what: str, y: Any, task: Task) -> Tensor:
    """Convert targets that are not classes to how the task stores them.

    Args:
        what: The name of the targets, for errors.
        y: The targets, as the user gave them.
        task: What they are for.

    Returns:
        Labels and numbers as float32 [n, outputs], tokens as int64 [n, length].
    """
    array = number_array(what, target_array(what, y))
    if task.targets in (NUMBERS, LABELS):
        array = array.reshape(len(array), -1) if array.ndim < 2 else array
        return torch.from_numpy(np.ascontiguousarray(array, np.float32))
    if array.dtype.kind not in "iu":
        raise HoldfastError(f"{what} must be tokens, whole numbers, not {array.dtype}; convert them")
    return torch.from_numpy(np.ascontiguousarray(array, np.int64))


def output_names(y: Tensor, task: Task, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the network's outputs for targets that are not classes.

    Args:
        y: The targets, as they are stored.
        task: What they are for.
        names: The names that the user gave.

    Returns:
        Those, or numbers.
    """
    if names is not None:
        return tuple(map(str, names))
    if task.targets == TOKENS:
        return tuple(map(str, range(int(y.max()) + 1 if y.numel() else 1)))
    return ("y",) if y.shape[1] == 1 else tuple(f"y{i}" for i in range(y.shape[1]))


def with_task(data: DataSet, task: Task) -> DataSet:
    """Return a data set for another task; classes with numbers as names become numbers.

    Args:
        data: The data set.
        task: The task.

    Returns:
        The data set; a task that does not fit its targets is an error.
    """
    if task.targets == data.task.targets:
        return replace(data, task=task)
    if data.task.targets == CLASS and task.targets == NUMBERS and data.on_demand is None:
        try:
            values = torch.tensor([float(name) for name in data.classes])
        except ValueError:
            pass
        else:
            y, test_y = (values[y][:, None] for y in (data.y, data.test_y))
            return replace(data, task=task, y=y, test_y=test_y, classes=("y",))
    raise HoldfastError(
        f"{data.name} is data for {data.task.name}, not for {task.name}: leave out task, or prepare its targets"
    )
