"""Shared by adam and adamw: one step of Adam as a pure function."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from holdfast.method.part import Client, Tensors

STATE = (("m", "v"), "steps")  # the vectors and the counter of the optimiser's state


def adam_step(c: Client, g: Tensor, betas: tuple[float, float], eps: float) -> tuple[Tensor, Tensors]:
    """Take one step of Adam (Kingma and Ba 2015, Alg. 1).

    Args:
        c: The client, whose scratch holds the moments and the number of steps so far.
        g: The direction.
        betas: The decay of the two moments.
        eps: What is added to the root.

    Returns:
        The step, without the learning rate, and the new scratch.
    """
    steps = c.local["steps"] + 1
    m = betas[0] * c.local["m"] + (1 - betas[0]) * g
    v = betas[1] * c.local["v"] + (1 - betas[1]) * g**2
    mean, square = m / seen(betas[0], steps), v / seen(betas[1], steps)
    return mean / (torch.sqrt(square) + eps), {"m": m, "v": v, "steps": steps}


def seen(beta: float, steps: Tensor) -> Tensor:
    """Return ``1 - beta**steps``, without the rounding error that it has in float32 when beta is close to 1.

    >>> seen(0.5, torch.tensor(3.0)), seen(0.0, torch.tensor(1.0))
    (tensor(0.8750), tensor(1.))
    """
    return -torch.expm1(steps * (math.log(beta) if beta else -math.inf))
