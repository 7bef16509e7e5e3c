"""A dense network as a chain of products with an activation after each, and its gradient by hand, client by client.

``columns`` are activations with a column per sample, [clients, units, batch]: in this order products with few outputs
are fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from holdfast.models.dropout import dropping
from holdfast.models.layout import Layout
from holdfast.models.net import Net
from holdfast.models.row_by_row import ASKING, RESHAPING, works_row_by_row

Slope = Callable[[Tensor, Tensor], Tensor]  # (slope with respect to its value, its value) -> with respect to its input


class Activation(NamedTuple):
    """A function of single numbers, and its slope from its value alone."""

    apply: Callable[[Tensor], Tensor]  # in place
    slope: Slope


RELU = Activation(Tensor.relu_, lambda d, value: torch.ops.aten.threshold_backward(d, value, 0))
TANH = Activation(Tensor.tanh_, torch.ops.aten.tanh_backward)
SIGMOID = Activation(Tensor.sigmoid_, torch.ops.aten.sigmoid_backward)
ACTIVATIONS = {
    F.relu: RELU, torch.relu: RELU, Tensor.relu: RELU,
    torch.tanh: TANH, Tensor.tanh: TANH,
    torch.sigmoid: SIGMOID, Tensor.sigmoid: SIGMOID,
}  # fmt: skip


class Product(NamedTuple):
    """A product with trained weights, by their names, and what follows it."""

    weight: str
    bias: str | None
    activation: Activation | None = None


class StackedLayer(NamedTuple):
    """A product with the weights of all clients, inside their vectors."""

    weight: Tensor  # [clients, outputs, inputs]
    bias: Tensor | None  # [clients, outputs]
    activation: Activation | None


def find_chain(net: Net, example: Tensor) -> tuple[Product, ...] | None:
    """Return the products of a network that is nothing but a chain of them, bottom-up; None for any other.

    Args:
        net: The network.
        example: Two inputs.

    Returns:
        The products. Each has weights of its own, and all of them are trained.
    """
    if net.head is None or net.fixed_head or net.dropout or not works_row_by_row(net, example):
        return None
    watched = ChainWatch(net.body, example.clone())
    net.set_training(True)
    with torch.no_grad(), dropping(None), watched:
        found = net.body(watched.last)
    if not watched.holds or found is not watched.last or found.dim() != 2:
        return None
    weight, bias = (f"{net.head}.{name}".lstrip(".") for name in ("weight", "bias"))
    chain = (*watched.products, Product(weight, bias if bias in net.layout.names else None))
    used = [name for p in chain for name in (p.weight, p.bias) if name is not None]
    return chain if sorted(used) == sorted(net.layout.names) else None


class ChainWatch(TorchFunctionMode):
    """Watches whether a module that works row by row takes every step on the result of the step before.

    Args:
        body: The module.
        x: Its input.

    Attributes:
        holds: Whether that was so until now.
        last: The last result.
        products: The products so far.
    """

    def __init__(self, body: nn.Module, x: Tensor) -> None:
        super().__init__()
        self.names = {id(p): name for name, p in body.named_parameters()}
        self.holds, self.last = True, x
        self.products: list[Product] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        before = self.last
        found = func(*args, **(kwargs or {}))
        if func in ASKING:
            return found
        self.last = found
        self.holds &= args[0] is before and self._follows(func, args, kwargs or {})
        return found

    def _follows(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Note one step of the chain; return whether it is one."""
        if func in RESHAPING:
            return True
        if func is F.linear:
            return args[0].dim() == 2 and self._multiplies(*args[1:], **kwargs)
        if func not in ACTIVATIONS or not self.products or self.products[-1].activation is not None:
            return False
        self.products[-1] = self.products[-1]._replace(activation=ACTIVATIONS[func])
        return True

    def _multiplies(self, weight: Tensor, bias: Tensor | None = None) -> bool:
        name = self.names.get(id(weight))
        own = None if bias is None else self.names.get(id(bias))
        if name is None or (own is None) is not (bias is None):
            return False
        self.products.append(Product(name, own))
        return True


def layers_in(chain: Sequence[Product], layout: Layout, w: Tensor) -> list[StackedLayer]:
    """Return the products with the weights inside the clients' vectors ``w``, [clients, P], without a copy."""
    pieces = layout.split(w)
    return [StackedLayer(pieces[p.weight], None if p.bias is None else pieces[p.bias], p.activation) for p in chain]


def run_layers(layers: Sequence[StackedLayer], x: Tensor) -> list[Tensor]:
    """Run the layers; return the columns that enter each, and the outputs.

    Args:
        layers: The layers.
        x: Every client's inputs, [clients, batch, inputs].

    Returns:
        A tensor more than there are layers.
    """
    columns = [x.transpose(1, 2)]
    for weight, bias, activation in layers:
        if bias is None:
            product = torch.bmm(weight, columns[-1])
        else:
            product = torch.baddbmm(bias[:, :, None], weight, columns[-1])
        columns.append(product if activation is None else activation.apply(product))
    return columns


def write_gradient(
    layers: Sequence[StackedLayer], columns: Sequence[Tensor], slope: Tensor, found: Sequence[StackedLayer]
) -> None:
    """Write the gradient of every weight.

    Args:
        layers: The layers.
        columns: What ``run_layers`` returned.
        slope: The slope of the loss with respect to the outputs, [clients, outputs, batch].
        found: The layers in the vectors that are to hold the gradient.
    """
    for i in reversed(range(len(layers))):
        torch.bmm(slope, columns[i].transpose(1, 2), out=found[i].weight)
        bias = found[i].bias
        if bias is not None:
            torch.sum(slope, 2, out=bias)
        slope = slope_below(layers, columns, slope, i)


def slope_below(layers: Sequence[StackedLayer], columns: Sequence[Tensor], slope: Tensor, i: int) -> Tensor:
    """Return the slope of the loss with respect to the products of the layer below layer ``i``; at the end nothing."""
    if i == 0:
        return slope
    below = torch.bmm(layers[i].weight.transpose(1, 2), slope)
    activation = layers[i - 1].activation
    return below if activation is None else activation.slope(below, columns[i])
