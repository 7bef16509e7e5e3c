"""The cost of a network: its parameters, and its arithmetic per sample."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from holdfast.models.dropout import dropping


def parameters(module: nn.Module) -> int:
    """Count the parameters, which is what a client uploads.

    >>> parameters(nn.Linear(784, 10))
    7850
    """
    return sum(w.numel() for w in module.parameters())


def mflops(module: nn.Module, shape: tuple[int, ...]) -> float:
    """Count the millions of operations in one forward pass of one sample of ``shape``.

    These are the multiplications and additions of ``Linear``, ``Conv2d`` and recurrent layers, two per weight used.
    Biases, norms, activations and pools are few and not counted. The backward pass costs about twice as much. Only
    shapes are traced; nothing is computed.

    >>> mflops(nn.Linear(784, 10), (784,))
    0.01568
    """
    counted = 0

    def count(layer: nn.Module, _: Any, output: Any) -> None:
        nonlocal counted
        if isinstance(layer, nn.RNNBase):
            steps = output[0].numel() // output[0].shape[-1]
            counted += 2 * steps * sum(w.numel() for name, w in layer.named_parameters() if "weight" in name)
        if isinstance(layer, nn.Linear):
            counted += 2 * output.numel() * layer.in_features
        if isinstance(layer, nn.Conv2d):
            counted += 2 * output.numel() * layer.weight[0].numel()

    hooks = [layer.register_forward_hook(count) for layer in module.modules()]
    try:
        outline(module, shape)
    finally:
        for hook in hooks:
            hook.remove()
    return counted / 1e6


def outline(net: nn.Module, shape: tuple[int, ...]) -> Tensor:
    """Return the output of ``net`` for one sample as a tensor with a shape but no numbers: nothing is computed."""
    weights = {name: torch.empty_like(w, device="meta") for name, w in net.named_parameters()}
    tokens = any(isinstance(layer, nn.Embedding) for layer in net.modules())
    dtype = torch.int64 if tokens else next((w.dtype for w in weights.values()), None)
    with torch.no_grad(), dropping(None):
        output: Tensor = functional_call(net, weights, (torch.empty(1, *shape, dtype=dtype, device="meta"),))
    return output
