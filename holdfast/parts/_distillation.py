"""Shared by parts that train the model at the server: Adam, minibatches and distillation, as pure functions.

Optimiser states are dictionaries of tensors, so that they are checkpointed like any other state of a part. Every random
number is a hash of a key.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from holdfast.core import rng
from holdfast.method.part import Tensors
from holdfast.models.net import Net

BETAS, EPS = (0.9, 0.999), 1e-8  # Adam's usual constants


def part_key(k: Tensor, part: str) -> Tensor:
    """Derive a key for one part, so that two parts of a sum never draw the same numbers."""
    return rng.key(k, zlib.crc32(part.encode()))


def adam_state(p: Tensor) -> Tensors:
    """Return Adam's state before the first step."""
    zero = torch.zeros_like(p)
    return {"m": zero, "v": zero.clone(), "step": torch.zeros((), dtype=torch.int64, device=p.device)}


def adam(p: Tensor, g: Tensor, s: Tensors, lr: float) -> tuple[Tensor, Tensors]:
    """Take one step of Adam (Kingma and Ba 2015, Alg. 1).

    Where every gradient so far was zero, the step is zero rather than 0/0, because EPS is outside the root.

    Args:
        p: The parameters.
        g: Their gradient.
        s: Adam's state.
        lr: The learning rate.

    Returns:
        The new parameters and the new state.
    """
    step = s["step"] + 1
    m = BETAS[0] * s["m"] + (1 - BETAS[0]) * g
    v = BETAS[1] * s["v"] + (1 - BETAS[1]) * g**2
    t = step.to(p.dtype)
    mean, square = m / (1 - BETAS[0] ** t), v / (1 - BETAS[1] ** t)
    return p - lr * mean / (torch.sqrt(square) + EPS), {"m": m, "v": v, "step": step}


def cosine(lr: float, step: int, steps: int) -> float:
    """Return the learning rate of a step: it falls from ``lr`` towards 0 along half a cosine.

    Args:
        lr: The initial rate.
        step: The step, from 0.
        steps: The number of steps.

    Returns:
        The rate.
    """
    return lr * (1 + math.cos(math.pi * step / steps)) / 2


def gradient_from_logits(net: Net, w: Tensor, x: Tensor, gap: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the gradient of a loss that is given by its derivative with respect to the logits.

    For KL(p || softmax(logits)) the derivative is softmax(logits) - p. Written out, it is exactly zero where the two
    agree; differentiating the logarithms leaves rounding errors.

    Args:
        net: The network.
        w: The model.
        x: The inputs.
        gap: Returns the derivative of the loss with respect to the logits.

    Returns:
        The gradient with respect to the model.
    """
    logits, back = torch.func.vjp(lambda v: net(v, x).logits, w)  # type: ignore[misc]
    (g,) = back(gap(logits))
    return torch.as_tensor(g)


def minibatches(n: int, batch: int, steps: int, k: Tensor, shuffled: bool = True) -> Iterator[Tensor]:
    """Yield the sample numbers of every step, in passes over all samples.

    Args:
        n: The number of samples.
        batch: Samples per step.
        steps: The number of steps.
        k: The key from which the orders come.
        shuffled: Whether each pass has an order of its own; otherwise all have the samples' own.

    Returns:
        An iterator over index tensors.
    """
    order = torch.zeros(0, dtype=torch.int64, device=k.device)
    per_pass = -(-n // batch)
    for step in range(steps):
        number, place = divmod(step, per_pass)
        if place == 0:
            order = torch.arange(n, device=k.device)
            order = rng.key(rng.key(k, number), order).argsort(stable=True) if shuffled else order
        yield order[place * batch : (place + 1) * batch]
