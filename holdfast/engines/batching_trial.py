"""Whether a model can be batched over clients, found by training two clients on two samples each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.utils._pytree import tree_map

from holdfast.core import rng
from holdfast.core.errors import HoldfastError
from holdfast.models.net import Net


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
    return None
