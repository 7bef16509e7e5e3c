"""Weights of classes and labels in the loss, so that rare ones are not ignored.

The objective is the plain mean of weighted sample losses. So FedAvg minimises the weighted objective of the pooled
data, whatever classes a client holds.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.data.federation import Federation
from holdfast.tasks.task import CLASS, LABELS

NONE, BALANCED = "none", "balanced"


def with_loss_weights(federation: Federation, class_weights: str, pos_weight: float | str | None) -> Federation:
    """Return a federation whose losses are weighted as the settings of these names say.

    Args:
        federation: The clients and all of their data.
        class_weights: ``none`` or ``balanced``.
        pos_weight: A factor, ``balanced``, or None.

    Returns:
        The federation with its weights; without any if both settings are left out.
    """
    if class_weights != NONE:
        _check_classes(federation)
        federation.need_all_clients(f"class_weights {class_weights}")
        return replace(federation, weight=balanced_classes(federation))
    if pos_weight is not None:
        _check_positives(federation)
        if isinstance(pos_weight, str):
            federation.need_all_clients(f"pos_weight {pos_weight}", "give a number")
        return replace(federation, weight=positive_weights(federation, pos_weight))
    return replace(federation, weight=None)


def balanced_classes(federation: Federation) -> Tensor:
    """Return ``n / (k * n_c)`` for every class, from the clients' training samples.

    ``k`` counts the classes that occur, so that the mean weight of a sample is 1 and the learning rate keeps its
    meaning. A class without samples has weight 0.
    """
    counts = torch.bincount(_targets(federation), minlength=federation.classes).double()
    return torch.where(counts > 0, counts.sum() / ((counts > 0).sum() * counts), 0.0)


def positive_weights(federation: Federation, pos_weight: float | str) -> Tensor:
    """Return the factor on the loss of positives: of every label, or of the second of two classes beside 1.

    ``balanced`` is negatives per positive among the clients' training samples; 1 where either is missing.
    """
    two_classes = federation.data.task.targets == CLASS
    if isinstance(pos_weight, str):
        y = _targets(federation).double()
        positives, negatives = y.sum(0), (1 - y).sum(0)
        factor = torch.where((positives > 0) & (negatives > 0), negatives / positives, 1.0)
    else:
        factor = torch.full(() if two_classes else (federation.classes,), pos_weight, dtype=torch.float64)
    return torch.stack([torch.ones_like(factor), factor]) if two_classes else factor


def _targets(federation: Federation) -> Tensor:
    """Return the targets of the clients' training samples."""
    if not len(federation.deal.index):
        raise HoldfastError(
            "balanced weights count the clients' samples, which only the nodes have: give --pos-weight a number, or "
            "leave it out"
        )
    return federation.data.y.cpu()[torch.from_numpy(federation.deal.index)]


def _check_classes(federation: Federation) -> None:
    task = federation.data.task
    if task.targets != CLASS:
        remedy = "use --pos-weight balanced" if task.targets == LABELS else "leave it out"
        raise HoldfastError(f"class_weights needs one class per sample, but the task is {task.name}: {remedy}")


def _check_positives(federation: Federation) -> None:
    task = federation.data.task
    if task.targets not in (CLASS, LABELS):
        raise HoldfastError(f"pos_weight needs labels or two classes, but the task is {task.name}: leave it out")
    if task.targets == CLASS and federation.classes != 2:
        raise HoldfastError(
            f"pos_weight needs labels or two classes, but {federation.data.name} has {federation.classes} classes: use "
            "--class-weights balanced"
        )
