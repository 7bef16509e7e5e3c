"""Recurrent layers step by step: they batch over clients in every pass, and take their dropout from a key.

PyTorch's own are faster for one client, but cannot be batched where it does not differentiate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError
from holdfast.models.dropout import drop_units

Cell = Callable[[Tensor, tuple[Tensor, ...], Sequence[Tensor], bool], tuple[Tensor, ...]]


def lstm_cell(x: Tensor, state: tuple[Tensor, ...], weights: Sequence[Tensor], biases: bool) -> tuple[Tensor, ...]:
    """Return the next hidden state and memory of an LSTM; a last weight, if any, projects the hidden state.

    Args:
        x: The input of this step, [batch, features].
        state: The hidden state and the memory before it.
        weights: Input and hidden weights, biases if there are any, and the projection if there is one.
        biases: Whether there are biases.

    Returns:
        The new state; its first entry is the output.
    """
    hidden, memory = state
    own, other = _products(x, hidden, weights, biases)
    enter, forget, new, leave = (own + other).chunk(4, -1)
    memory = torch.sigmoid(forget) * memory + torch.sigmoid(enter) * torch.tanh(new)
    hidden = torch.sigmoid(leave) * torch.tanh(memory)
    extra = weights[4 if biases else 2 :]
    return (F.linear(hidden, extra[0]) if extra else hidden), memory


def gru_cell(x: Tensor, state: tuple[Tensor, ...], weights: Sequence[Tensor], biases: bool) -> tuple[Tensor, ...]:
    """Return the next hidden state of a GRU.

    Args:
        x: The input of this step, [batch, features].
        state: The hidden state before it.
        weights: Input and hidden weights, and biases if there are any.
        biases: Whether there are biases.

    Returns:
        The new state.
    """
    own, other = (t.chunk(3, -1) for t in _products(x, state[0], weights, biases))
    reset, keep = torch.sigmoid(own[0] + other[0]), torch.sigmoid(own[1] + other[1])
    new = torch.tanh(own[2] + reset * other[2])
    return (new + keep * (state[0] - new),)


def plain_cell(function: Callable[[Tensor], Tensor]) -> Cell:
    """Return the cell of a simple recurrent network with this activation."""

    def cell(x: Tensor, state: tuple[Tensor, ...], weights: Sequence[Tensor], biases: bool) -> tuple[Tensor, ...]:
        own, other = _products(x, state[0], weights, biases)
        return (function(own + other),)

    return cell


def _products(x: Tensor, hidden: Tensor, weights: Sequence[Tensor], biases: bool) -> tuple[Tensor, Tensor]:
    bias = weights[2:4] if biases else (None, None)
    return F.linear(x, weights[0], bias[0]), F.linear(hidden, weights[1], bias[1])


def keep_weights_apart(module: nn.Module) -> None:
    """Stop recurrent layers from moving their weights together in memory, as they do on a GPU.

    That needs weights with memory of their own, which they lack while clients are batched.
    """
    for sub in module.modules():
        if isinstance(sub, nn.RNNBase):
            sub.flatten_parameters = _leave_weights  # type: ignore[method-assign]


def _leave_weights() -> None:
    """Do nothing, in place of ``flatten_parameters``."""


CELLS: dict[Callable[..., Any], Cell] = {
    torch.lstm: lstm_cell,
    torch.gru: gru_cell,
    torch.rnn_tanh: plain_cell(torch.tanh),
    torch.rnn_relu: plain_cell(torch.relu),
}


def run_recurrent(function: Callable[..., Any], batch: int | None, *args: Any) -> Any:
    """Compute what one of PyTorch's recurrent functions does, with the same arguments.

    Args:
        function: The function, such as ``torch.lstm``.
        batch: The rows of the batch, or None if nothing is dropped.
        args: Its arguments.

    Returns:
        The outputs and the last states, as the function returns them.
    """
    if len(args) != 9 or not isinstance(args[2], (list, tuple)):
        raise HoldfastError("recurrent layers take packed sequences only with --engine loop; pad the sequences")
    x, state, weights, biases, layers, dropped, train, both, batch_first = args
    states = tuple(state) if isinstance(state, (list, tuple)) else (state,)
    x = x.transpose(0, 1) if batch_first else x
    ways = 2 if both else 1
    each = len(weights) // (layers * ways)
    finals = []
    for layer in range(layers):
        found = []
        for way in range(ways):
            at = layer * ways + way
            own = tuple(s[at] for s in states)
            outputs, final = _one_way(CELLS[function], x, own, weights[at * each : (at + 1) * each], biases, way == 1)
            found.append(outputs)
            finals.append(final)
        x = torch.cat(found, -1)
        if train and dropped and layer < layers - 1:
            x = drop_units(x, dropped, batch)
    x = x.transpose(0, 1) if batch_first else x
    return (x, *(torch.stack(s) for s in zip(*finals, strict=True)))


def _one_way(
    cell: Cell, x: Tensor, state: tuple[Tensor, ...], weights: Sequence[Tensor], biases: bool, backwards: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run one layer over time in one direction; return all outputs and the last state."""
    steps = list(x.unbind(0))
    outputs = []
    for step in reversed(steps) if backwards else steps:
        state = cell(step, state, weights, biases)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if backwards else outputs), state
