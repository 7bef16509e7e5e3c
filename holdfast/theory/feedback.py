"""FedAgg's feedback on a small federation: which path can the clients be compared with?

Eight clients train softmax regression on overlapping clouds of points, each client mostly on one class, in plain loops
and float64. The rates come from the library's functions. ``anchored`` is what the part does: the reference path is the
one at the nominal rate. ``self`` takes the path that the cohort took in the round before.
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
    """The samples of all clients."""

    x: Tensor  # [client, sample, input], the last input is 1
    y: Tensor  # [client, sample]


@cache
def clouds(equal: bool = False) -> Cloud:
    """Return the clients' samples; with ``equal`` every client has those of the first one."""
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
    """Return every client's gradient of its mean cross-entropy.

    Args:
        w: The model of every client, [client, P].
        x: The samples of every client.
        y: Their labels.

    Returns:
        The gradients, [client, P].
    """
    p = torch.softmax(torch.einsum("cni,cki->cnk", x, w.view(len(w), CLASSES, -1)), 2)
    error = p - torch.nn.functional.one_hot(y, CLASSES)
    return torch.einsum("cnk,cni->cki", error, x).flatten(1) / x.shape[1]


def visit(w: Tensor) -> Tensor:
    """Return every client's full gradient at one model, as the fixed point needs it."""
    cloud = clouds()
    return gradients(w.expand(CLIENTS, -1), cloud.x, cloud.y)


class RoundPath(NamedTuple):
    """A round: every client's model after each epoch, as deltas, and the sum of its gradients in each."""

    path: Tensor  # [epoch + 1, client, P]
    sums: Tensor  # [epoch, client, P]
    rates: Tensor  # [epoch, client]


def local(
    w0: Tensor, cloud: Cloud, field: Tensor | None, path: Tensor | None, limits: tuple[float, float]
) -> RoundPath:
    """Train all clients for one round.

    Args:
        w0: The global model.
        cloud: The clients' samples.
        field: phi1; None in the first round, which has the nominal rate.
        path: The reference path as deltas; None for the nominal one.
        limits: The least and the largest rate.

    Returns:
        What the clients did.
    """
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
    return RoundPath(torch.stack(deltas), torch.stack(sums), torch.stack(rates))


def rate(field: Tensor, delta: Tensor, path: Tensor | None, epoch: int) -> Tensor:
    """Return a client's rate at the start of an epoch, not clipped.

    Args:
        field: phi1.
        delta: The client's model, as a delta.
        path: The reference path as deltas; None for the nominal one.
        epoch: The epoch.

    Returns:
        The rate.
    """
    if path is None:
        nominal = torch.tensor(LR, dtype=field.dtype)
        return tail_rate(field, delta, nominal, ALPHA, torch.tensor(epoch))
    return solve(field, delta - path[1:], ALPHA, epoch)[epoch]


@cache
def rates(feedback: str, rounds: int = 100, equal: bool = False) -> Tensor:
    """Return the rates of all rounds.

    Args:
        feedback: ``anchored`` or ``self``.
        rounds: How many rounds.
        equal: Whether all clients have the same samples.

    Returns:
        The rates, [round, epoch, client].
    """
    cloud, w = clouds(equal), torch.zeros(CLASSES * (INPUTS + 1), dtype=torch.float64)
    limits = (1e-3, 0.5) if feedback == "anchored" else (0.0, 0.5)
    field, path, every = None, None, []
    for _ in range(rounds):
        trained = local(w, cloud, field, path, limits)
        field = trained.sums.mean(1)
        path = trained.path.mean(1) if feedback == "self" else None
        w = w + trained.path[-1].mean(0)
        every.append(trained.rates)
    return torch.stack(every)
