"""A model with its running statistics, and a client's score, as arrays of a message."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.core.tensors import Tensors
from holdfast.engines.local_training import Broadcast
from holdfast.flower.array_codec import Refused, Spec, spec_of
from holdfast.models.net import Net
from holdfast.training.evaluation import Score


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


def score_tensors(score: Score) -> Tensors:
    """Return a score as tensors."""
    names = ("accuracy", "loss", "by_class", "loss_by_class")
    return {name: torch.tensor(getattr(score, name), dtype=torch.float64) for name in names}


def score_of(tensors: Tensors) -> Score:
    """Undo ``score_tensors``."""
    by_class, loss_by_class = (tuple(tensors[name].tolist()) for name in ("by_class", "loss_by_class"))
    values = {name: float(tensors[name]) for name in ("accuracy", "loss")}
    return Score(values, by_class, loss_by_class)


def refuse_impossible_score(tensors: Tensors) -> None:
    """Refuse accuracies that are not fractions and losses below zero; NaN stands for what was not measured."""
    accuracy = torch.cat([tensors["accuracy"].reshape(1), tensors["by_class"]])
    loss = torch.cat([tensors["loss"].reshape(1), tensors["loss_by_class"]])
    if bool((accuracy < 0).any() or (accuracy > 1).any() or (loss < 0).any()):
        raise Refused("its score is not possible")
