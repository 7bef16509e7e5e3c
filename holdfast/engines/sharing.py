"""Whether two runs can train their clients in the rows of one traced step.

A step has everything built in that is no input of a row: the parts with a half at the client, with those parameters
that are none, the network with its frozen parameters, the samples and how they are turned into inputs. All of it must
be the same.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from holdfast.core.tensors import Tensors
from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation
from holdfast.engines.local_training import LocalTraining
from holdfast.method.step_numbers import built_in
from holdfast.models.net import Net


def difference(one: LocalTraining, other: LocalTraining) -> str | None:
    """Tell what keeps the local steps of two runs from being one, to complete the sentence "it has ...".

    Args:
        one: The local training of a run.
        other: That of another run on the same device.

    Returns:
        The difference, or None if there is none.
    """
    if built_in(one.method) != built_in(other.method) or one.epochs != other.epochs or one.trip != other.trip:
        return "another method"
    return network_difference(one.net, other.net) or federation_difference(one.federation, other.federation)


def network_difference(one: Net, other: Net) -> str | None:
    """Tell how two networks differ as functions of a vector; their weights do not count."""
    names = ("dtype", "precision", "batchnorm", "head", "classes", "shape", "dropout", "random", "channels_last")
    same = all(getattr(one, name) == getattr(other, name) for name in names)
    if not same or str(one.body) != str(other.body) or one.layout.names_and_sizes != other.layout.names_and_sizes:
        return "another network"
    if not equal_tensors(constants(one), constants(other)):
        return "other frozen parameters or buffers in its network"
    return None


def constants(net: Net) -> Tensors:
    """Return the tensors of a network that are built into its function."""
    found: Tensors = dict((*net.body.named_parameters(), *net.body.named_buffers()))
    inputs = {name for name, _ in net.layout.names_and_sizes}
    inputs |= set(net.statistics.buffers(net.stats)) if net.carries else set()
    return {name: t for name, t in found.items() if name not in inputs} | net.fixed_head


def federation_difference(one: Federation, other: Federation) -> str | None:
    """Tell how samples reach the network differently; who holds which of them does not count."""
    a, b = one.data, other.data
    if a.x is not b.x or a.y is not b.y or a.task != b.task or a.fields != b.fields or one.tokens != other.tokens:
        return "other samples"
    if (a.mean, a.std, one.dtype, one.augment) != (b.mean, b.std, other.dtype, other.augment):
        return "samples that are normalised or augmented differently"
    if not equal_tensors(*({"weight": f.weight} if f.weight is not None else {} for f in (one, other))):
        return "other weights in its loss"
    if one.deal is not other.deal and (one.deal.noise is not None or other.deal.noise is not None):
        return "other feature noise"
    return None if torch.equal(one.public, other.public) else "other public data"


def equal_tensors(one: Tensors, other: Tensors) -> bool:
    """Tell whether two dictionaries hold equal tensors."""
    return one.keys() == other.keys() and all(equal(t, other[name]) for name, t in one.items())


def equal(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors are the same in type, shape and content."""
    return one is other or (one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other))


def with_samples_of(one: DataSet, other: DataSet) -> DataSet:
    """Return a data set with the tensors of another one in place of its own, as far as they are equal."""
    found = {name: getattr(other, name) for name in ("x", "y", "test_x", "test_y")}
    same = {name: t for name, t in found.items() if equal(t, getattr(one, name))}
    return replace(one, **same)
