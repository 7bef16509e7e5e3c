"""The small federation of FedBug's Sec. 4 and Appendix B: two clients, a linear network of two layers, orthogonal data.

The model is f(x) = x [a, b]^T v. Client 1 has [1,0] -> 1 and moves (a, v), client 2 has [0,1] -> 1 and moves (b, v).
The gradients are those of B.3 and B.5, ``v (av - 1)`` and ``a (av - 1)``: of the loss (av - 1)^2 / 2. Models are
tensors [..., 3] of (a, b, v); all runs of an experiment are computed together.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from holdfast.parts.fedbug import unfrozen

SEEDS, ROUNDS, STEPS, LR = 50, 80, 50, 0.1  # B.6
TINY = 1e-9  # smaller discrepancies are rounding errors


# ------------------------------------------------------------------------------------------------ gradient flow
def flow(a: Tensor, v: Tensor, time: float = 40.0, step: float = 0.005) -> tuple[Tensor, Tensor]:
    """Follow the gradient flow from (a, v) (Runge-Kutta of order four).

    Args:
        a: The start.
        v: The start.
        time: How long to follow it.
        step: The step of the integration.

    Returns:
        a and v after that time.
    """

    def slope(at: Tensor) -> Tensor:
        return (1 - at[0] * at[1]) * at.flip(0)

    at = torch.stack([a, v])
    for _ in range(round(time / step)):
        k1 = slope(at)
        k2 = slope(at + step / 2 * k1)
        k3 = slope(at + step / 2 * k2)
        k4 = slope(at + step * k3)
        at = at + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return at[0], at[1]


def limit(a: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return where gradient flow from a, v > 0 ends: av = 1, with the same a^2 - v^2. B.3 prints one more factor 1/2.

    >>> a, v = limit(torch.tensor(2.0), torch.tensor(2.0))
    >>> float(a), float(v)
    (1.0, 1.0)
    """
    c = a * a - v * v
    root = torch.sqrt(c * c + 4)
    return torch.sqrt((root + c) / 2), torch.sqrt((root - c) / 2)


def printed_limit(a: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same as B.3 prints it."""
    right = limit(a, v)
    return right[0] / 2, right[1] / 2


def hessian(a: float, v: float) -> Tensor:
    """Return the Hessian of |av - 1|^2, by autograd."""
    at = torch.tensor([a, v], dtype=torch.float64)
    jacrev = torch.func.jacrev
    second: Tensor = jacrev(jacrev(lambda w: (w[0] * w[1] - 1) ** 2))(at)
    return second


# ------------------------------------------------------------------------------------------------ rounds
def starts(seeds: int = SEEDS) -> Tensor:
    """Return starts (a, b, v), each uniform in [0, 2] (B.6)."""
    return 2 * torch.rand(seeds, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def thawed(share: float, steps: int = STEPS) -> tuple[bool, ...]:
    """Return whether v moves in each local step of FedBug: M = 2 blocks, [a, b] below v."""
    if share == 0:
        return (True,) * steps
    K = torch.tensor(steps)
    return tuple(int(unfrozen(torch.tensor(k), K, 2, share)) == 2 for k in range(1, steps + 1))


def after_round(model: Tensor, moves: tuple[bool, ...], lr: float = LR) -> Tensor:
    """Return the server's model after a round.

    Args:
        model: The model before.
        moves: Whether v moves, for every local step.
        lr: The learning rate.

    Returns:
        The model after it.

    >>> after_round(torch.tensor([2.0, 1.0, 1.0]), (False,), lr=0.5)  # a goes to 1.5, b stays
    tensor([1.7500, 1.0000, 1.0000])
    """
    a, b, v = model.unbind(-1)
    ends = []
    for low in (a, b):
        top = v
        for moving in moves:
            error = low * top - 1
            low, top = low - lr * error * top, top - lr * error * low if moving else top
        ends.append((low, top))
    (own_a, v1), (own_b, v2) = ends
    return torch.stack([(own_a + a) / 2, (own_b + b) / 2, (v1 + v2) / 2], -1)


@cache
def path(moves: tuple[bool, ...], rounds: int = ROUNDS, seeds: int = SEEDS) -> Tensor:
    """Return the server's models after 0, 1, ... rounds.

    Args:
        moves: Whether v moves, for every local step.
        rounds: How many rounds.
        seeds: How many runs.

    Returns:
        The models, [rounds + 1, seeds, 3].
    """
    models = [starts(seeds)]
    for _ in range(rounds):
        models.append(after_round(models[-1], moves))
    return torch.stack(models)


def loss(model: Tensor) -> Tensor:
    """Return the mean of the two clients' |av - 1|^2."""
    a, b, v = model.unbind(-1)
    return ((a * v - 1) ** 2 + (b * v - 1) ** 2) / 2


def discrepancy(model: Tensor) -> Tensor:
    """Return |a - b| (Definition 1)."""
    return (model[..., 0] - model[..., 1]).abs()


def cos2(model: Tensor) -> Tensor:
    """Return cos^2 of the angle between a client's gradient, along (v, a), and the axis of v; mean of both clients."""
    a, b, v = model.unbind(-1)
    return (a**2 / (a**2 + v**2) + b**2 / (b**2 + v**2)) / 2


def bound(model: Tensor, frozen: int = 0, alpha: float = 0.0) -> Tensor:
    """Return the bound of Theorems 1 and 2: (1 + m (1 + alpha) cos^2 theta) / 2, where m = (1 - lr v^2)^frozen.

    Args:
        model: The model.
        frozen: Local steps in which v does not move.
        alpha: The slack of the theorems.

    Returns:
        The bound on the ratio.
    """
    m = (1 - LR * model[..., 2] ** 2) ** frozen
    return (1 + m * (1 + alpha) * cos2(model)) / 2


def ratio(model: Tensor, moves: tuple[bool, ...]) -> Tensor:
    """Return the contraction of the discrepancy in one round from here (Definition 2)."""
    return discrepancy(after_round(model, moves)) / discrepancy(model)


@cache
def visited(most: float = float("inf")) -> Tensor:
    """Return the server's models of FedAvg's runs whose ratio can be measured and whose loss is below ``most``."""
    models = path(thawed(0))[:-1].reshape(-1, 3)
    return models[(discrepancy(models) > TINY) & (loss(models) < most)]


def slack(model: Tensor, moves: tuple[bool, ...]) -> float:
    """Return the smallest alpha with which the bound holds at all these models."""
    tight = bound(model, moves.count(False)) * 2 - 1
    return float(((ratio(model, moves) * 2 - 1) / tight - 1).max())
