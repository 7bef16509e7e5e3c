"""FedAgg's feedback on a small federation: who may the clients be compared with?

Eight clients with softmax regression on overlapping clouds of points, each client mostly of one class; plain loops in
float64. The rates come from the library's functions. ``anchored`` is what the part does: the reference path is the one
at the nominal rate. ``self`` takes the path on which the cohort really was in the round before.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.parts.fedagg import solve, tail_rate

CLIENTS, SAMPLES, INPUTS, CLASSES = 8, 40, 5, 3
EPOCHS, STEPS, LR, ALPHA = 3, 5, 0.1, 0.1


class Cloud(NamedTuple):
    x: Tensor  # [client, sample, input], the last input is 1
    y: Tensor  # [client, sample]


@cache
def clouds(equal: bool = False) -> Cloud:
    """The clients' samples; with ``equal`` everyone has those of the first client."""
    rng = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    means = normal(CLASSES, INPUTS)
    share = torch.full((CLIENTS, CLASSES), 0.15)
    share[torch.arange(CLIENTS), torch.arange(CLIENTS) % CLASSES] = 0.7
    y = torch.multinomial(share, SAMPLES, replacement=True, generator=rng)
    x = means[y] + normal(CLIENTS, SAMPLES, INPUTS) + 0.3 * normal(CLIENTS, 1, INPUTS)
    x = torch.cat([x, torch.ones(CLIENTS, SAMPLES, 1, dtype=torch.float64)], 2)
    return Cloud(x[:1].expand(x.shape), y[:1].expand(y.shape)) if equal else Cloud(x, y)


def gradients(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Every client's gradient of its mean cross-entropy at its own row of w, [client, P]."""
    p = torch.softmax(torch.einsum("cni,cki->cnk", x, w.view(len(w), CLASSES, -1)), 2)
    error = p - torch.nn.functional.one_hot(y, CLASSES)
    return torch.einsum("cnk,cni->cki", error, x).flatten(1) / x.shape[1]


def visit(w: Tensor) -> Tensor:
    """Every client's full gradient at one model: what the fixed point asks for."""
    cloud = clouds()
    return gradients(w.expand(CLIENTS, -1), cloud.x, cloud.y)


class Epochs(NamedTuple):
    """A round: every client's model after each epoch, as deltas, and the sums of its gradients in each."""

    path: Tensor  # [epoch + 1, client, P]
    sums: Tensor  # [epoch, client, P]
    rates: Tensor  # [epoch, client]


def local(w0: Tensor, cloud: Cloud, field: Tensor | None, path: Tensor | None, limits: tuple[float, float]) -> Epochs:
    """One round of local training. ``field`` is phi1; ``path`` the reference as deltas, None for the nominal one."""
    delta = torch.zeros(CLIENTS, len(w0), dtype=w0.dtype)
    deltas, sums, rates = [delta], [], []
    for epoch in range(EPOCHS):
        eta = torch.full((CLIENTS,), LR, dtype=w0.dtype)
        if field is not None:
            eta = torch.stack([rate(field, d, path, epoch) for d in delta]).clamp(*limits)
        total = torch.zeros_like(delta)
        for x, y in zip(cloud.x.chunk(STEPS, 1), cloud.y.chunk(STEPS, 1), strict=True):
            g = gradients(w0 + delta, x, y)
            delta, total = delta - eta[:, None] * g, total + g
        deltas.append(delta)
        sums.append(total)
        rates.append(eta)
    return Epochs(torch.stack(deltas), torch.stack(sums), torch.stack(rates))


def rate(field: Tensor, delta: Tensor, path: Tensor | None, epoch: int) -> Tensor:
    """A client's rate at the start of an epoch, not clipped."""
    if path is None:
        nominal = torch.tensor(LR, dtype=field.dtype)
        return tail_rate(field, delta, nominal, ALPHA, torch.tensor(epoch))
    return solve(field, delta - path[1:], ALPHA, epoch)[epoch]


@cache
def rates(feedback: str, rounds: int = 100, equal: bool = False) -> Tensor:
    """The rates of all rounds, [round, epoch, client]; ``feedback`` is ``anchored`` or ``self``."""
    cloud, w = clouds(equal), torch.zeros(CLASSES * (INPUTS + 1), dtype=torch.float64)
    limits = (1e-3, 0.5) if feedback == "anchored" else (0.0, 0.5)
    field, path, found = None, None, []
    for _ in range(rounds):
        went = local(w, cloud, field, path, limits)
        field = went.sums.mean(1)
        path = went.path.mean(1) if feedback == "self" else None
        w = w + went.path[-1].mean(0)
        found.append(went.rates)
    return torch.stack(found)
