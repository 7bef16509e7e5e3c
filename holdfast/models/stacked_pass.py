"""A pass of several clients through a dense network, and its gradient, as one operation under ``vmap``.

What parts do with the outputs is batched and differentiated by function transforms, for which the network in between
looks like any other operation; inside, plain autograd differentiates batched products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Tensors = dict[str, Tensor]
Split = Callable[[Tensor], Tensors]  # models [clients, P] -> their parameters
Run = Callable[[Tensors, Tensor, Tensor | None], tuple[Tensor, ...]]  # (parameters, inputs, keys) -> outputs


class Tape:
    """What the gradient of a pass needs.

    Args:
        split: Returns the parameters inside models.
        run: Runs the network.
    """

    def __init__(self, split: Split, run: Run) -> None:
        self.split, self.run = split, run
        self.leaves: list[Tensor] = []
        self.outputs: tuple[Tensor, ...] = ()

    def record(self, w: Tensor, x: Tensor, keys: Tensor | None) -> tuple[Tensor, ...]:
        """Run the network and keep what its gradient needs."""
        leaves = {name: p.detach().requires_grad_() for name, p in self.split(w).items()}
        with torch.enable_grad():
            self.outputs = self.run(leaves, x, keys)
        self.leaves = list(leaves.values())
        return tuple(out.detach() for out in self.outputs)

    def gradient(self, *down: Tensor | None) -> Tensor:
        """Return the gradient of the models, [clients, P], from that of the outputs."""
        pairs = [(out, g) for out, g in zip(self.outputs, down, strict=True) if out.requires_grad]
        outputs, given = zip(*pairs, strict=True)
        found = torch.autograd.grad(outputs, self.leaves, given, allow_unused=True, materialize_grads=True)
        return torch.cat([g.flatten(1) for g in found], 1)


class StackedPass(torch.autograd.Function):
    """Runs the network; called inside ``vmap`` over clients with a ``Tape``, a model, inputs, and a key or None."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.tape = inputs[0]

    @staticmethod
    def backward(ctx: Any, *down: Tensor) -> tuple[Any, ...]:
        return None, StackedGradient.apply(ctx.tape, *down), None, None  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(info: Any, dims: tuple[Any, ...], tape: Tape, *inputs: Tensor | None) -> tuple[Any, Any]:
        outputs = tape.record(*with_client_axis(info.batch_size, dims[1:], inputs))  # type: ignore[arg-type]
        return outputs, (0,) * len(outputs)


class StackedGradient(torch.autograd.Function):
    """The gradient of ``StackedPass`` with respect to the model."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, dims: tuple[Any, ...], tape: Tape, *down: Tensor | None) -> tuple[Any, Any]:
        return tape.gradient(*with_client_axis(info.batch_size, dims[1:], down)), 0


def with_client_axis(clients: int, dims: tuple[int | None, ...], given: tuple[Any, ...]) -> list[Any]:
    """Return tensors with the axis of the clients first, also where all of them have the same."""
    return [
        t if t is None else t.expand(clients, *t.shape) if dim is None else t.movedim(dim, 0)
        for dim, t in zip(dims, given, strict=True)
    ]
