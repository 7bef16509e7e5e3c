"""Whether a model can be batched over clients, found by training two clients on two samples each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.utils._pytree import tree_map

from holdfast.core import rng
from holdfast.core.errors import HoldfastError
from holdfast.models.batchnorm import Moments, batchnorm_layers
from holdfast.models.net import Net
from holdfast.models.row_by_row import works_row_by_row

FAR = 0.05  # how much of a batch's change of the running statistics may be due to padding, by rounding


def obstacle(net: Net, example: Any) -> str | None:
    """Tell why the vector engine cannot train a model, to complete the sentence "the model ...".

    Args:
        net: The network.
        example: Two inputs.

    Returns:
        The reason, or None if it can.
    """
    if net.random:
        return "draws random numbers in forward, which differ between clients of one batch"
    if net.takes_numbers and works_row_by_row(net, example):
        return None  # nothing but products and functions of single numbers; the trial would import half of PyTorch
    mask = torch.tensor([True, True], device=net.device)

    def loss(w: Tensor, x: Any, key: Tensor) -> Tensor:
        return net.training_pass(w, x, mask, key)[0].logits.sum()

    w, x = tree_map(lambda t: torch.stack([t, t]), (net.initial, example))
    keys = rng.key(0, torch.arange(2, device=net.device))
    try:
        vmap(grad(loss))(w, x, keys)
    except Exception as error:
        end = "; " if isinstance(error, HoldfastError) else ". "
        problem = " ".join(str(error).split()).partition(end)[0]
        return f"cannot be batched over clients: {problem}"
    if any(norm.running_mean is None for norm in batchnorm_layers(net.body).values()):
        return "has a BatchNorm layer without running statistics, which padding reaches in evaluation"
    if net.carries and padding_counts(net, example):
        return "reorders samples before a BatchNorm layer, so that padding cannot be told apart"
    return None


def padding_counts(net: Net, example: Any) -> bool:
    """Tell whether padding changes the statistics of a BatchNorm layer, since its rows are not in the batch's order.

    Args:
        net: The network.
        example: Two inputs.

    Returns:
        Whether two samples with padding give other statistics than without.
    """
    g = torch.Generator().manual_seed(0)
    short = tree_map(lambda t: torch.randn(t.shape, generator=g).to(t) if t.is_floating_point() else t, example)
    padded = tree_map(lambda t: torch.cat([t, t[:1]]), short)
    mask = torch.tensor([True, True, False], device=net.device)
    with torch.no_grad():
        right, found = (net.training_pass(net.initial, x, m, None)[1] for x, m in ((short, None), (padded, mask)))
    layers = zip(*map(net.statistics.moments, (net.stats, right, found)), strict=True)
    return any(bool(distance(new, padded) > FAR * distance(old, new)) for old, new, padded in layers)


def distance(one: Moments, other: Moments) -> Tensor:
    """Return how far the running statistics of a layer are apart."""
    apart: Tensor = torch.linalg.vector_norm(torch.cat([one.mean - other.mean, one.variance - other.variance]))
    return apart
