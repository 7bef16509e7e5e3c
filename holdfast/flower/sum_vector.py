"""What the clients of a node would upload, as one vector that can be summed over nodes.

Every number is multiplied by the client's share of it in the mean of the whole cohort: the weight of the mean, an equal
share for what enters the server as a total, the share of samples for losses and moments. The server divides the sum by
the shares of the clients that are in it, and has the one row with which ``method/one_row.py`` replaces a cohort.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from holdfast.core.tensors import Tensors
from holdfast.flower.array_codec import Refused, Spec
from holdfast.method.method import Method
from holdfast.method.part import TOTAL

DELTA, UPLOADS = "delta", "uploads"
BY_WEIGHT, EQUAL, BY_SAMPLES = 0, 1, 2
CohortShare = tuple[float, float, float]  # of one client in the cohort: by weight, equal, by samples


def kind_of(name: str, method: Method) -> int:
    """Return by which share a tensor of an update is summed; its name is as in a client's reply."""
    place, _, rest = name.partition("/")
    if place not in (DELTA, UPLOADS):
        return BY_SAMPLES
    part, _, entry = rest.partition("/")
    linear = next((p.linear or {} for p in method.parts if p.name == part), {})
    return EQUAL if place == UPLOADS and linear.get(entry) == TOTAL else BY_WEIGHT


def summed(updates: Mapping[int, Tensors], shares: Mapping[int, CohortShare], length: int, method: Method) -> Tensor:
    """Return the vector of a node.

    Args:
        updates: What each client would upload.
        shares: Each client's shares in the cohort.
        length: The length of the vector, as the server expects it.
        method: The method.

    Returns:
        The sum over the clients, in float64; zeros if there are none.
    """
    total = torch.zeros(length, dtype=torch.float64)
    for client, update in updates.items():
        rows = [update[name].detach().cpu().double().reshape(-1) * shares[client][kind_of(name, method)]
                for name in sorted(update)]  # fmt: skip
        vector = torch.cat(rows)
        if len(vector) != length:
            raise Refused(f"the server expects {length} numbers, and client {client} has {len(vector)}")
        total += vector
    return total


def length_of(like: Spec) -> int:
    """Return the length of the vector."""
    return sum(torch.Size(array.shape).numel() for array in like.values())


def means(total: Tensor, shares: Sequence[CohortShare], like: Spec, method: Method) -> Tensors:
    """Return the means over the clients in a sum.

    Args:
        total: The sum over all nodes.
        shares: The shares of the clients that are in it.
        like: The names, types and shapes of what one client uploads.
        method: The method.

    Returns:
        The means by name; those of whole numbers are rounded.
    """
    summed_shares = [sum(share[kind] for share in shares) for kind in (BY_WEIGHT, EQUAL, BY_SAMPLES)]
    found: Tensors = {}
    rows = torch.split(total, [torch.Size(like[name].shape).numel() for name in sorted(like)])
    for name, row in zip(sorted(like), rows, strict=True):
        mean = row.reshape(like[name].shape) / summed_shares[kind_of(name, method)]
        found[name] = (mean if like[name].dtype.is_floating_point else mean.round()).to(like[name].dtype)
    return found
