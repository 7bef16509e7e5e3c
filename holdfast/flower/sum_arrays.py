"""Sums over clients' samples as arrays of a message, and the scales that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from flwr.app import ArrayRecord
from torch import Tensor

from holdfast.core.tensors import Tensors
from holdfast.data.federated_moments import ClientSums, combine, scale_of
from holdfast.data.scales import INPUTS, TARGETS, Scales
from holdfast.flower.array_codec import ArraySpec, Refused, Spec, pack, unpack_any

SCALES = "scales"  # the record of means and standard deviations in a request
MOST_VALUES = 2**52  # largest number of values that a client sums up


def sum_spec(sizes: dict[str, int]) -> Spec:
    """Return what a client sends, from the number of channels or targets of what is summed up."""
    return {
        f"{what}/{name}": ArraySpec(torch.float64, () if name == "n" else (size,))
        for what, size in sizes.items()
        for name in ClientSums._fields
    }


def sum_tensors(sums: ClientSums, what: str) -> Tensors:
    """Return the sums of one client as tensors."""
    return {f"{what}/{name}": t[0] for name, t in sums._asdict().items()}


def refuse_impossible_sums(tensors: Tensors) -> None:
    """Refuse sums that no samples have."""
    for name, t in tensors.items():
        kind = name.partition("/")[2]
        whole = kind != "n" or (0 < float(t) < MOST_VALUES and float(t).is_integer())
        if not bool(torch.isfinite(t).all()) or not whole or (kind == "squares" and bool((t < 0).any())):
            raise Refused("its sums are not possible")


def combined_scales(replies: Iterable[Tensors], wanted: Sequence[str]) -> Scales:
    """Combine the sums of clients.

    Args:
        replies: What every client sent.
        wanted: What was summed up.

    Returns:
        The means and standard deviations.
    """
    rows = list(replies)
    found = {}
    for what in wanted:
        every = (ClientSums(*(row[f"{what}/{name}"][None] for name in ClientSums._fields)) for row in rows)
        found[what] = combine(every)
    return Scales(*found.get(INPUTS, ((), ())), *found.get(TARGETS, ((), ())))


def moment(sums: ClientSums, centre: Tensor | None) -> Tensor:
    """Return the mean of one client's values, or of their squared differences to a centre.

    Args:
        sums: The sums of the client.
        centre: The centre, if squares are wanted.

    Returns:
        The mean per channel or target, in float64.
    """
    n, shift, rest, squares = (t[0] for t in sums)
    if centre is None:
        return shift + rest / n
    apart = shift - centre
    return (squares + 2 * apart * rest + n * apart.square()) / n


def scales_of_moments(mean: Tensors, square: Tensors) -> Scales:
    """Return the scales that follow from the means of all clients and the mean squares around them."""
    found = {what: scale_of(mean[what], square[what]) for what in mean}
    return Scales(*found.get(INPUTS, ((), ())), *found.get(TARGETS, ((), ())))


def scales_record(scales: Scales) -> ArrayRecord:
    """Return scales as a record of a request."""
    return pack({name: torch.tensor(v, dtype=torch.float64) for name, v in scales._asdict().items()})


def read_scales(record: ArrayRecord) -> Scales:
    """Undo ``scales_record``."""
    found = unpack_any(record, "the scales")
    if found.keys() != set(Scales._fields):
        raise Refused("the scales have the wrong names")
    return Scales(**{name: tuple(t.tolist()) for name, t in found.items()})
