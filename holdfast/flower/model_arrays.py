"""A model with its running statistics as arrays of a message."""

from __future__ import annotations

from torch import Tensor

from holdfast.core.tensors import Tensors
from holdfast.engines.local_training import Broadcast
from holdfast.flower.array_codec import Spec, spec_of
from holdfast.models.net import Net


def model_tensors(net: Net, broadcast: Broadcast, w: Tensor | None = None) -> Tensors:
    """Return a model to send.

    Args:
        net: The network.
        broadcast: What is sent, with the running statistics.
        w: Another model than that of the broadcast.

    Returns:
        The part of the model that travels, and the statistics.
    """
    return {"w": net.shared(broadcast.w0 if w is None else w)} | broadcast.stats


def shared_stats(net: Net) -> Tensors:
    """Return running statistics like those that the server sends; empty if it sends none."""
    return net.stats if net.carries and not net.kept_at_clients() else {}


def model_spec(net: Net) -> Spec:
    """Return what a model must look like when it arrives."""
    return spec_of({"w": net.shared(net.initial)} | shared_stats(net))
