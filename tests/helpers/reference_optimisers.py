"""Local optimisers and what stands on them once more: PyTorch's own optimisers, and equations written out.

A client's momentum is expanded into the weight of every single gradient: in step k a gradient of step j counts with
``rho^(k-j)``, and with Nesterov's rule as it is derived from there. Nothing here knows the optimisers of the package.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.reference import World, forward, layers, unfrozen, weighted

Build = Callable[[list[Tensor], float], torch.optim.Optimizer]  # (parameters, lr) -> optimiser
Change = Callable[[Tensor, Tensor], Tensor]  # (gradient, w) -> what the optimiser is given


def sgd(**options: object) -> Build:
    return lambda params, lr: torch.optim.SGD(params, lr, **options)


def adam(**options: object) -> Build:
    return lambda params, lr: torch.optim.Adam(params, lr, **options)


def adamw(**options: object) -> Build:
    return lambda params, lr: torch.optim.AdamW(params, lr, **options)


class Local:
    """One client's optimiser in one round, on the layers of a model; ``state`` is what it kept from the last one."""

    def __init__(self, w0: Tensor, lr: float, build: Build, state: dict | None = None) -> None:
        self.model = [(a.clone().requires_grad_(), b.clone().requires_grad_()) for a, b in layers(w0)]
        self.flat = [p for pair in self.model for p in pair]
        self.optimiser = build(self.flat, lr)
        if state is not None:
            self.optimiser.load_state_dict(copy.deepcopy(state))
            self.optimiser.param_groups[0]["lr"] = lr

    @property
    def w(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.flat])

    def step(self, x: Tensor, y: Tensor, free: int = 3, clip: float = 0.0, change: Change | None = None) -> Tensor:
        """Take a step with the first ``free`` layers; gives the gradient before anything changed it."""
        self.optimiser.zero_grad()
        F.cross_entropy(forward(self.model, x)[0], y).backward()
        moving = [p for pair in self.model[:free] for p in pair]
        for p in self.flat:
            if not any(p is q for q in moving):
                p.grad = None  # PyTorch leaves it alone: no decay, no momentum, no count
        plain = torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in self.flat])
        if change is not None:
            parts = torch.split(change(plain, self.w), [p.numel() for p in self.flat])
            for p, g in zip(self.flat, parts, strict=True):
                p.grad = None if p.grad is None else g.reshape(p.shape).clone()
        if clip:
            shorter = min(1.0, clip / float(torch.sqrt(sum((p.grad**2).sum() for p in moving))))
            for p in moving:
                p.grad *= shorter
        self.optimiser.step()
        return plain


def averaging(world: World, build: Build, clip: float = 0.0, keep: bool = False, percent: int = 0) -> Tensor:
    """FedAvg, or FedBug with ``percent``, whose clients run one of PyTorch's optimisers."""
    w0, kept = world.start, {}
    for cohort, lr, batches, p in world.rounds():
        deltas = []
        for i, own in zip(cohort, batches, strict=True):
            local = Local(w0, lr, build, kept.get(i) if keep else None)
            for k, (x, y) in enumerate(own, start=1):
                local.step(x, y, unfrozen(k, len(own), percent) if percent else 3, clip)
            kept[i] = local.optimiser.state_dict()
            deltas.append(local.w - w0)
        w0 = w0 + weighted(p, deltas)
    return w0


def scaffold(world: World, build: Build) -> Tensor:
    """The optimiser is given the corrected gradients; a control variate is the plain mean of the gradients seen."""
    w0, c, own = world.start, torch.zeros_like(world.start), {}
    for cohort, lr, batches, p in world.rounds():
        deltas, changes = [], []
        for i, b in zip(cohort, batches, strict=True):
            ci, local = own.get(i, torch.zeros_like(w0)), Local(w0, lr, build)
            seen = [local.step(x, y, change=lambda g, w, ci=ci, c=c: g - ci + c) for x, y in b]
            own[i] = sum(seen) / len(seen)
            deltas.append(local.w - w0)
            changes.append(own[i] - ci)
        w0, c = w0 + weighted(p, deltas), c + sum(changes) / len(world.clients)
    return w0


def feddyn(world: World, build: Build, alpha: float) -> Tensor:
    """The optimiser is given the gradient of the client's regularised loss."""
    w0, h, own = world.start, torch.zeros_like(world.start), {}
    for cohort, lr, batches, _ in world.rounds():
        deltas = []
        for i, b in zip(cohort, batches, strict=True):
            hi, local = own.get(i, torch.zeros_like(w0)), Local(w0, lr, build)
            for x, y in b:
                local.step(x, y, change=lambda g, w, hi=hi, w0=w0: g - hi + alpha * (w - w0))
            deltas.append(local.w - w0)
            own[i] = hi - alpha * deltas[-1]
        h = h - alpha / len(world.clients) * sum(deltas)
        w0 = w0 + sum(deltas) / len(deltas) - h / alpha
    return w0


# -- the weight of every gradient ------------------------------------------------------------------------------------
def share(j: int, k: int, rho: float, nesterov: bool = False) -> float:
    """The weight in step k of the gradient of step j <= k. Nesterov's step is g_k + rho * m_k."""
    old = rho ** (k - j)
    return float(j == k) + rho * old if nesterov else old


def total(K: int, rho: float, nesterov: bool = False, before: int = 0) -> float:
    """The weights of all gradients in K steps, added up one by one; ``before``: steps of earlier rounds, kept."""
    steps = range(before + 1, before + K + 1)
    return sum(share(j, k, rho, nesterov) for k in steps for j in range(1, k + 1))


def paper(K: int, rho: float) -> float:
    """The normaliser of FedNova's paper for SGD with momentum."""
    return (K - rho * (1 - rho**K) / (1 - rho)) / (1 - rho)


def fednova(world: World, rho: float, nesterov: bool = False, keep: bool = False, printed: bool = False) -> Tensor:
    """Eq. 6 with PyTorch's momentum; ``printed`` takes a_i from the paper's formula."""
    w, kept, steps = world.start, {}, {}
    for cohort, lr, batches, p in world.rounds():
        deltas, a = [], []
        for i, own in zip(cohort, batches, strict=True):
            local = Local(w, lr, sgd(momentum=rho, nesterov=nesterov), kept.get(i) if keep else None)
            for x, y in own:
                local.step(x, y)
            before = steps.get(i, 0) if keep else 0
            a.append(paper(len(own), rho) if printed else total(len(own), rho, nesterov, before))
            kept[i], steps[i] = local.optimiser.state_dict(), before + len(own)
            deltas.append(local.w - w)
        typical = sum(one * ai for one, ai in zip(p, a, strict=True))
        w = w + typical * weighted(p, [delta / ai for delta, ai in zip(deltas, a, strict=True)])
    return w


def fednova_fedbug(world: World, percent: int, rho: float = 0.0) -> Tensor:
    """A layer's a_i adds up the weights of the gradients that it had while it was free."""
    w = world.start
    layer = torch.cat([torch.full((q.numel(),), i) for i, pair in enumerate(layers(w)) for q in pair])
    for _, lr, batches, p in world.rounds():
        deltas, a = [], []
        for own in batches:
            local = Local(w, lr, sgd(momentum=rho))
            free = [unfrozen(k, len(own), percent) for k in range(1, len(own) + 1)]
            for (x, y), open_layers in zip(own, free, strict=True):
                local.step(x, y, open_layers)
            times = [sum(open_layers > i for open_layers in free) for i in range(3)]
            a.append(torch.tensor([total(t, rho) for t in times], dtype=torch.float64)[layer])
            deltas.append(local.w - w)
        typical = weighted(p, a)
        w = w + typical * weighted(p, [delta / ai for delta, ai in zip(deltas, a, strict=True)])
    return w


def fedcm(world: World, alpha: float, rho: float, nesterov: bool = False) -> Tensor:
    """D is the update divided by the mean over clients of lr times the weights of all directions in it."""
    w0, D = world.start, torch.zeros_like(world.start)
    for _, lr, batches, p in world.rounds():
        deltas = []
        for own in batches:
            local = Local(w0, lr, sgd(momentum=rho, nesterov=nesterov))
            for x, y in own:
                local.step(x, y, change=lambda g, w, D=D: alpha * g + (1 - alpha) * D)
            deltas.append(local.w - w0)
        update = weighted(p, deltas)
        w0 = w0 + update
        D = -update / sum(one * lr * total(len(own), rho, nesterov) for one, own in zip(p, batches, strict=True))
    return w0


def steps_per_epoch(world: World, build: Build) -> Tensor:
    """The first round's sums, epoch by epoch, of what the optimiser took off the model, over lr: the cohort's mean."""
    cohort, lr, batches, _ = next(world.rounds())
    rows = []
    for own in batches:
        local, per_epoch = Local(world.start, lr, build), len(own) // world.epochs
        sums = [torch.zeros_like(world.start) for _ in range(world.epochs)]
        for number, (x, y) in enumerate(own):
            before = local.w
            local.step(x, y)
            sums[number // per_epoch] = sums[number // per_epoch] + (before - local.w) / lr
        rows.append(torch.stack(sums))
    return sum(rows) / len(cohort)
