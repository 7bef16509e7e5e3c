"""A dense network for several clients at once: their samples below each other, each client's with weights of its own.

Under ``vmap`` every operation costs time around it, and its gradient once more. A dense network needs neither: apart
from products with weights it treats each row by itself, so that the module runs once on the rows of all clients, and
only the products are batched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from holdfast.core.tensors import Tensors
from holdfast.models.dropout import dropping
from holdfast.models.net import Net, Out, of_sample


class StackedDense:
    """The training pass of a dense network for several clients at once. See ``works_row_by_row``.

    Args:
        net: The network.
    """

    def __init__(self, net: Net) -> None:
        self.net = net
        self.places = {name: id(p) for name, p in net.body.named_parameters()}

    def training_pass(
        self, net: Net, own: Mapping[str, Tensor], x: Tensor, mask: Tensor | None, keys: Tensor | None
    ) -> tuple[Out, Tensors]:
        """Run the models as ``Net.training_pass`` runs one.

        Args:
            net: The network.
            own: Every client's parameters by name, [clients, ...].
            x: Every client's inputs, [clients, batch, ...].
            mask: Not needed, since no row depends on another.
            keys: Every client's key of dropout; without them nothing is dropped.

        Returns:
            The outputs for every client's batch, [clients, batch, ...], and no running statistics.
        """
        parameters = dict(own)
        head = net.pop_head(parameters)
        net.set_training(True)
        with dropping(keys), OwnWeights({self.places[name]: p for name, p in parameters.items()}):
            features = net.body(x.flatten(0, 1))
            logits = features if head is None else head(features)
        logits, features = (t.reshape(*x.shape[:2], *t.shape[1:]) for t in (logits, of_sample(features)))
        return Out(logits, features), {}


class OwnWeights(TorchFunctionMode):
    """Multiplies with every client's own weights where a module multiplies with its trained ones.

    Args:
        own: The weights and biases of all clients, [clients, ...], by the ``id`` of the module's parameter.
    """

    def __init__(self, own: Mapping[int, Tensor]) -> None:
        super().__init__()
        self.own = own

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return (self.linear if func is F.linear else func)(*args, **(kwargs or {}))

    def linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Multiply as ``F.linear`` does, with every client's own weights in place of trained ones."""
        return multiply(input, self.own.get(id(weight), weight), self.own.get(id(bias), bias))


def multiply(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply each client's rows with its own weights.

    The weights come first in the product: then their gradient is laid out as they are.

    Args:
        input: The rows of all clients below each other, [clients * batch, ..., inputs].
        weight: [clients, outputs, inputs], or [outputs, inputs] if all clients share them.
        bias: [clients, outputs], or [outputs], or None.

    Returns:
        The products, [clients * batch, ..., outputs].
    """
    clients = next((len(t) for t, alone in ((weight, 2), (bias, 1)) if t is not None and t.dim() > alone), None)
    if clients is None:
        return F.linear(input, weight, bias)
    weight = weight.expand(clients, -1, -1)
    columns = input.reshape(clients, -1, input.shape[-1]).transpose(1, 2)
    if bias is None:
        product = torch.bmm(weight, columns)
    else:
        product = torch.baddbmm(bias.expand(clients, -1)[:, :, None], weight, columns)
    return product.transpose(1, 2).reshape(*input.shape[:-1], -1)
