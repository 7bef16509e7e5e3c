"""The mean and standard deviation of inputs and of targets, for data sets that lack them: what nodes are sent."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from holdfast.data.dataset import DataSet
from holdfast.data.federated_moments import ClientSums, client_sums
from holdfast.data.federation import Federation
from holdfast.data.normalisation import FEDERATED
from holdfast.data.prepare import channelled

INPUTS, TARGETS = "inputs", "targets"  # what a scale is of


class Scales(NamedTuple):
    """Means and standard deviations; empty where values stay as they are."""

    mean: tuple[float, ...] = ()  # per channel or feature of an input
    std: tuple[float, ...] = ()
    target_mean: tuple[float, ...] = ()  # per target
    target_std: tuple[float, ...] = ()


def known_scales(data: DataSet) -> Scales:
    """Return the scales that a data set has."""
    return Scales(data.mean, data.std, *data.task.scale)


def missing_scales(federation: Federation) -> tuple[str, ...]:
    """Return what must be scaled by sums of the clients' samples and is not yet: inputs, targets, both or neither."""
    data = federation.data
    inputs = data.normalise == FEDERATED and not data.mean and not data.fields and not federation.tokens
    return ((INPUTS,) if inputs else ()) + ((TARGETS,) if data.task.lacks_scale else ())


def sums_of(data: DataSet, rows: Tensor, what: str) -> ClientSums:
    """Return the sums of one client.

    Args:
        data: Holds its samples.
        rows: Their numbers.
        what: Whether to sum their inputs or their targets.

    Returns:
        The sums, with a client axis of length 1.
    """
    return client_sums((channelled(data.x[rows]) if what == INPUTS else data.y[rows]).cpu())


def with_scales(federation: Federation, scales: Scales) -> Federation:
    """Return a federation whose inputs and targets are scaled; what has a scale already keeps it."""
    data = federation.data
    if scales.mean and not data.mean:
        data = replace(data, mean=scales.mean, std=scales.std)
    if scales.target_mean and data.task.lacks_scale:
        task = data.task.with_scale(scales.target_mean, scales.target_std)
        data = replace(data, task=task, y=task.scaled(data.y), test_y=task.scaled(data.test_y))
    return replace(federation, data=data)
