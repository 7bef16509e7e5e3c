"""Adaptive SAM, FedGAMMA, FedSMOO and the step-only normalisation of FedMRUR, in plain loops from their equations."""

from __future__ import annotations

import torch
from torch import Tensor

from helpers.reference import Batches, World, at_worst, averaging, gradient, layers, unfrozen, weighted


def uphill(w: Tensor, x: Tensor, y: Tensor, rho: float, eta: float, free: int = 3) -> Tensor:
    """ASAM, weight by weight: epsilon_j = rho * T_j^2 g_j / ||T g|| with T_j = |w_j| + eta."""
    g = gradient(w, x, y, free=free)
    square = torch.zeros((), dtype=w.dtype)
    for weight, slope in zip(w, g, strict=True):
        square = square + ((weight.abs() + eta) * slope) ** 2
    step = [rho * (weight.abs() + eta) ** 2 * slope / square.sqrt() for weight, slope in zip(w, g, strict=True)]
    return gradient(w + torch.stack(step), x, y, free=free)


def asam(world: World, rho: float, eta: float) -> Tensor:
    return averaging(world, lambda w0, i: lambda k, w, x, y: uphill(w, x, y, rho, eta))


def fedbug_asam(world: World, percent: int, rho: float, eta: float) -> Tensor:
    """Under bottom-up unfreezing: frozen layers are neither perturbed nor counted in the norm."""
    w0 = world.start
    layer = torch.cat([torch.full((p.numel(),), i) for i, pair in enumerate(layers(w0)) for p in pair])
    for _, lr, batches, p in world.rounds():
        deltas = []
        for b in batches:
            w = w0
            for k, (x, y) in enumerate(b, start=1):
                free = unfrozen(k, len(b), percent)
                w = torch.where(layer < free, w - lr * uphill(w, x, y, rho, eta, free), w)
            deltas.append(w - w0)
        w0 = w0 + weighted(p, deltas)
    return w0


def fedgamma(world: World, rho: float) -> Tensor:
    """SCAFFOLD's two lines with the gradient at the perturbed model: c_i' = c_i - c - delta/(K*lr)."""
    w0, c, own = world.start, torch.zeros_like(world.start), {}
    for cohort, lr, batches, p in world.rounds():
        deltas, changes = [], []
        for i, b in zip(cohort, batches, strict=True):
            ci, w = own.get(i, torch.zeros_like(w0)), w0
            for x, y in b:
                w = w - lr * (at_worst(w, x, y, rho) - ci + c)
            own[i] = ci - c + (w0 - w) / (len(b) * lr)
            deltas.append(w - w0)
            changes.append(own[i] - ci)
        w0, c = w0 + weighted(p, deltas), c + sum(changes) / len(world.clients)
    return w0


def fedsmoo(world: World, penalty: float, rho: float, last: bool = False) -> Tensor:
    """The model's multiplier is lambda_i with 1/beta = penalty, the perturbation's is mu_i; s is the common one.

    ``last`` takes each client's last perturbation off what the server averages.
    """
    N, w0 = len(world.clients), world.start
    zero = torch.zeros_like(w0)
    lambdas, mu, s = dict.fromkeys(range(N), zero), dict.fromkeys(range(N), zero), zero
    server = zero
    for cohort, lr, batches, _ in world.rounds():
        models, duals = [], []
        for i, b in zip(cohort, batches, strict=True):
            w = w0
            for x, y in b:
                v = gradient(w, x, y) - mu[i] - s
                climb = rho * v / v.norm()
                mu[i] = mu[i] + (climb - s)
                w = w - lr * (gradient(w + climb, x, y) - lambdas[i] + penalty * (w - w0))
            lambdas[i] = lambdas[i] - penalty * (w - w0)
            server = server - penalty / N * (w - w0)
            models.append(w)
            duals.append(mu[i] - climb if last else mu[i])
        mean = sum(duals) / len(duals)
        s, w0 = rho * mean / mean.norm(), sum(models) / len(models) - server / penalty
    return w0


def smoo_unfreezing(world: World, percent: int, rho: float) -> Tensor:
    """FedSMOO's perturbation alone, under bottom-up unfreezing: a frozen coordinate keeps its multiplier."""
    w0, mu, s = world.start, dict.fromkeys(range(len(world.clients)), torch.zeros_like(world.start)), 0.0
    layer = torch.cat([torch.full((p.numel(),), i) for i, pair in enumerate(layers(w0)) for p in pair])
    for cohort, lr, batches, p in world.rounds():
        deltas = []
        for i, b in zip(cohort, batches, strict=True):
            w = w0
            for k, (x, y) in enumerate(b, start=1):
                free = unfrozen(k, len(b), percent)
                moves = (layer < free).double()
                v = moves * (gradient(w, x, y, free=free) - mu[i] - s)
                climb = rho * v / v.norm()
                mu[i] = mu[i] + moves * (climb - s)
                w = w - lr * moves * gradient(w + climb, x, y, free=free)
            deltas.append(w - w0)
        mean = weighted(p, [mu[i] for i in cohort])
        w0, s = w0 + weighted(p, deltas), rho * mean / mean.norm()
    return w0


def fedcm_normalized(world: World, alpha: float, step_only: bool) -> Tensor:
    """FedCM with the server's step at the mean length of the deltas; D is made from the plain mean if ``step_only``."""
    w0, D = world.start, torch.zeros_like(world.start)
    for _, lr, batches, _ in world.rounds():
        deltas = [mixed(w0, b, lr, alpha, D) for b in batches]
        mean = sum(deltas) / len(deltas)
        long = sum(d.norm() for d in deltas) / len(deltas) * mean / mean.norm()
        K = sum(len(b) for b in batches) / len(batches)
        w0, D = w0 + long, -(mean if step_only else long) / (lr * K)
    return w0


def mixed(w0: Tensor, batches: Batches, lr: float, alpha: float, D: Tensor) -> Tensor:
    """A client's delta under FedCM."""
    w = w0
    for x, y in batches:
        w = w - lr * (alpha * gradient(w, x, y) + (1 - alpha) * D)
    return w - w0


def fedexp_of_fedbug(world: World) -> Tensor:
    """FedBug's code: max(1, mean ||delta||^2 / (||mean delta||^2 + |S|)), and the model itself is evaluated."""
    w = world.start
    for _, lr, batches, _ in world.rounds():
        deltas = [mixed(w, b, lr, 1.0, torch.zeros_like(w)) for b in batches]
        mean = sum(deltas) / len(deltas)
        longer = sum((d**2).sum() for d in deltas) / len(deltas) / ((mean**2).sum() + len(deltas))
        w = w + max(1.0, float(longer)) * mean
    return w


def fedexp_of_its_authors(world: World, eps: float) -> Tensor:
    """Their code: both means by samples, |S| * eps; the mean of the last two models."""
    models = [world.start]
    for _, lr, batches, p in world.rounds():
        w = models[-1]
        deltas = [mixed(w, b, lr, 1.0, torch.zeros_like(w)) for b in batches]
        mean = weighted(p, deltas)
        squares = sum(share * (d**2).sum() for share, d in zip(p, deltas, strict=True))
        models.append(w + max(1.0, float(squares / (2 * ((mean**2).sum() + len(deltas) * eps)))) * mean)
    return (models[-1] + models[-2]) / 2


def feddecorr_of_fedbug(world: World, beta: float) -> Tensor:
    """0.001 there: beta times the mean of the squared off-diagonal entries of Z^T Z, divided by N; 1e-8 under the root.

    With corr = Z^T Z / (N - 1) this is beta * (N-1)^2/N * mean(corr^2).
    """

    def decorrelated(logits: Tensor, z: Tensor, y: Tensor) -> Tensor:
        task = torch.nn.functional.cross_entropy(logits, y)
        N, d = z.shape
        if N == 1:
            return task
        unit = (z - z.mean(0)) / torch.sqrt(z.var(0) + 1e-8)
        squares = [(unit[:, j] @ unit[:, k]) ** 2 for j in range(d) for k in range(d) if j != k]
        return task + beta * torch.stack(squares).mean() / N

    return averaging(world, lambda w0, i: lambda k, w, x, y: gradient(w, x, y, decorrelated))
