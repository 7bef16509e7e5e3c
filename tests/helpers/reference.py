"""The methods once more, straight from their equations: plain loops over rounds, clients and steps, plain autograd.

Nothing here knows parts, hooks, engines, layouts or modules. A model is one vector of numbers; ``layers`` cuts the
weights and biases of a three-layer network out of it. From the package it takes only the data, the cohorts that were
drawn, and the order of the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.engines.batches import plan

SHAPES = [((5, 3), (5,)), ((4, 5), (4,)), ((3, 4), (3,))]  # weight and bias of each layer, bottom-up
Batches = list[tuple[Tensor, Tensor]]
Direction = Callable[[int, Tensor, Tensor, Tensor], Tensor]  # (k, w, x, y) -> what the step goes against


@dataclass(frozen=True)
class World:
    """What a method is run on."""

    x: Tensor
    y: Tensor
    clients: list[Tensor]  # the samples of each
    start: Tensor  # the first global model
    cohorts: list[list[int]]  # of each round
    batch: int
    epochs: int
    lr0: float
    lr_decay: float
    seed: int = 0

    def rounds(self) -> Iterator[tuple[list[int], float, list[Batches], Tensor]]:
        """For each round: who, the learning rate, everyone's batches, and everyone's share of the samples."""
        for t, cohort in enumerate(self.cohorts, start=1):
            n = torch.tensor([len(self.clients[i]) for i in cohort], dtype=torch.float64)
            yield cohort, self.lr0 * self.lr_decay ** (t - 1), [self.batches(t, i) for i in cohort], n / n.sum()

    def batches(self, t: int, client: int) -> Batches:
        own = self.clients[client]
        found = plan(
            own[None], torch.tensor([len(own)]), torch.tensor([client]), words=(self.seed, t, 0), batch=self.batch,
            epochs=self.epochs, steps=None,
        )  # fmt: skip
        rows = [i[m] for i, m in zip(found.index[0].flatten(0, 1), found.mask[0].flatten(0, 1), strict=True)]
        return [(self.x[i], self.y[i]) for i in rows]


# -- the network -----------------------------------------------------------------------------------------------------
def layers(w: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The (weight, bias) of each layer."""
    found, at = [], 0
    for shapes in SHAPES:
        pair = []
        for shape in shapes:
            size = torch.Size(shape).numel()
            pair.append(w[at : at + size].reshape(shape))
            at += size
        found.append(tuple(pair))
    return found


def forward(model: list[tuple[Tensor, Tensor]], x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and features."""
    (a, b), (c, d), (e, f) = model
    z = torch.tanh(torch.tanh(x @ a.T + b) @ c.T + d)
    return z @ e.T + f, z


def loss(logits: Tensor, z: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(logits, y)


def gradient(w: Tensor, x: Tensor, y: Tensor, loss: Callable[..., Tensor] = loss, free: int = 3) -> Tensor:
    """The gradient of ``loss(logits, z, y)``; layers above the first ``free`` are constants, their gradient is zero."""
    model = [
        (a.clone().requires_grad_(i < free), b.clone().requires_grad_(i < free)) for i, (a, b) in enumerate(layers(w))
    ]
    logits, z = forward(model, x)
    loss(logits, z, y).backward()
    return torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten() for pair in model for p in pair])


def descend(w0: Tensor, batches: Batches, lr: float, direction: Direction) -> Tensor:
    """Local training: the delta."""
    w = w0
    for k, (x, y) in enumerate(batches, start=1):
        w = w - lr * direction(k, w, x, y)
    return w - w0


def plain(k: int, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return gradient(w, x, y)


def weighted(p: Tensor, rows: list[Tensor]) -> Tensor:
    return sum(share * row for share, row in zip(p, rows, strict=True))


# -- the local step --------------------------------------------------------------------------------------------------
def averaging(world: World, direction: Callable[[Tensor, int], Direction]) -> Tensor:
    """FedAvg whose clients step against ``direction(w0, client)(k, w, x, y)``."""
    w0 = world.start
    for cohort, lr, batches, p in world.rounds():
        w0 = w0 + weighted(p, [descend(w0, b, lr, direction(w0, i)) for i, b in zip(cohort, batches, strict=True)])
    return w0


def fedavg(world: World) -> Tensor:
    return averaging(world, lambda w0, i: plain)


def fedprox(world: World, mu: float) -> Tensor:
    return averaging(world, lambda w0, i: lambda k, w, x, y: gradient(w, x, y) + mu * (w - w0))


def at_worst(w: Tensor, x: Tensor, y: Tensor, rho: float, free: int = 3) -> Tensor:
    g = gradient(w, x, y, free=free)
    return gradient(w + rho * g / g.norm(), x, y, free=free)


def fedsam(world: World, rho: float) -> Tensor:
    return averaging(world, lambda w0, i: lambda k, w, x, y: at_worst(w, x, y, rho))


def fedlc(world: World, tau: float, out: bool = False) -> Tensor:
    """With ``out``, the sum over classes leaves out those that the client lacks."""

    def direction(w0: Tensor, i: int) -> Direction:
        labels = world.y[world.clients[i]].tolist()
        margin = torch.tensor([tau * max(1, labels.count(c)) ** -0.25 for c in range(3)], dtype=torch.float64)
        there = torch.tensor([float(c in labels or not out) for c in range(3)], dtype=torch.float64)

        def calibrated(logits: Tensor, z: Tensor, y: Tensor) -> Tensor:
            e = there * torch.exp(logits - margin)
            return -torch.log(e[torch.arange(len(y)), y] / e.sum(1)).mean()

        return lambda k, w, x, y: gradient(w, x, y, calibrated)

    return averaging(world, direction)


def fedrs(world: World, alpha: float, graded: bool = False) -> Tensor:
    """With ``graded``, every class is scaled by its share of the most frequent class."""

    def direction(w0: Tensor, i: int) -> Direction:
        labels = world.y[world.clients[i]].tolist()
        counts = [labels.count(c) for c in range(3)]
        shares = [n / max(counts) if graded else float(n > 0) for n in counts]
        scale = torch.tensor([alpha + (1 - alpha) * share for share in shares], dtype=torch.float64)

        def restricted(logits: Tensor, z: Tensor, y: Tensor) -> Tensor:
            return loss(scale * logits, z, y)

        return lambda k, w, x, y: gradient(w, x, y, restricted)

    return averaging(world, direction)


def feddecorr(world: World, beta: float, code: bool = False) -> Tensor:
    """The sum over pairs of features written out; with ``code`` as in the authors' code, pair by different pair."""

    def decorrelated(logits: Tensor, z: Tensor, y: Tensor) -> Tensor:
        n, d = z.shape
        if n == 1:
            return loss(logits, z, y)
        unit = (z - z.mean(0)) / torch.sqrt(z.var(0) + 1e-5)
        total = torch.zeros((), dtype=z.dtype)
        for j in range(d):
            for k in range(d):
                product = (unit[:, j] * unit[:, k]).sum()
                if not code:
                    total = total + (product / (n - 1)) ** 2 / d**2
                elif j != k:
                    total = total + product**2 / (d * (d - 1)) / n
        return loss(logits, z, y) + beta * total

    return averaging(world, lambda w0, i: lambda k, w, x, y: gradient(w, x, y, decorrelated))


def moon(world: World, mu: float, T: float) -> Tensor:
    w0, previous = world.start, {}
    for cohort, lr, batches, p in world.rounds():
        deltas = []
        for i, own in zip(cohort, batches, strict=True):
            deltas.append(descend(w0, own, lr, contrast(w0, previous.get(i, w0), mu, T)))
        previous |= {i: w0 + delta for i, delta in zip(cohort, deltas, strict=True)}
        w0 = w0 + weighted(p, deltas)
    return w0


def contrast(w0: Tensor, before: Tensor, mu: float, T: float) -> Direction:
    def direction(k: int, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        zg, zp = (forward(layers(v), x)[1] for v in (w0, before))

        def contrastive(logits: Tensor, z: Tensor, y: Tensor) -> Tensor:
            near, old = (torch.exp(F.cosine_similarity(z, other) / T) for other in (zg, zp))
            return loss(logits, z, y) - mu * torch.log(near / (near + old)).mean()

        return gradient(w, x, y, contrastive)

    return direction


# -- control variates, dynamic regularisation, momentum --------------------------------------------------------------
def scaffold(world: World) -> Tensor:
    """Option II as the paper prints it: c_i' = c_i - c - delta/(K*lr)."""
    w0, c, own = world.start, torch.zeros_like(world.start), {}
    for cohort, lr, batches, p in world.rounds():
        deltas, changes = [], []
        for i, b in zip(cohort, batches, strict=True):
            ci = own.get(i, torch.zeros_like(w0))
            delta = descend(w0, b, lr, lambda k, w, x, y, ci=ci, c=c: gradient(w, x, y) - ci + c)
            own[i] = ci - c - delta / (len(b) * lr)
            deltas.append(delta)
            changes.append(own[i] - ci)
        w0, c = w0 + weighted(p, deltas), c + len(cohort) / len(world.clients) * sum(changes) / len(cohort)
    return w0


def feddyn(world: World, alpha: float, samples: float = 0.0) -> Tensor:
    """With ``samples``, the mean per client, each client's alpha is divided by its number relative to that mean."""
    w0, h, own = world.start, torch.zeros_like(world.start), {}
    for cohort, lr, batches, _ in world.rounds():
        deltas = []
        for i, b in zip(cohort, batches, strict=True):
            hi = own.get(i, torch.zeros_like(w0))
            a = alpha / (len(world.clients[i]) / samples) if samples else alpha
            delta = descend(w0, b, lr, lambda k, w, x, y, hi=hi, w0=w0, a=a: gradient(w, x, y) - hi + a * (w - w0))
            own[i] = hi - a * delta
            deltas.append(delta)
        h = h - alpha / len(world.clients) * sum(deltas)
        w0 = w0 + sum(deltas) / len(deltas) - h / alpha
    return w0


def fedcm(world: World, alpha: float, rho: float = 0.0) -> Tensor:
    """With a radius it is MoFedSAM."""
    w0, D = world.start, torch.zeros_like(world.start)
    for _, lr, batches, p in world.rounds():

        def direction(k: int, w: Tensor, x: Tensor, y: Tensor, D: Tensor = D) -> Tensor:
            g = at_worst(w, x, y, rho) if rho else gradient(w, x, y)
            return alpha * g + (1 - alpha) * D

        update = weighted(p, [descend(w0, b, lr, direction) for b in batches])
        w0, D = w0 + update, -update / sum(share * lr * len(b) for share, b in zip(p, batches, strict=True))
    return w0


# -- FedBug ----------------------------------------------------------------------------------------------------------
def unfrozen(k: int, K: int, percent: int) -> int:
    """The smallest m with m/3 >= k / (P*K), at most all three layers."""
    return next((m for m in (1, 2, 3) if m * percent * K >= k * 3 * 100), 3)


def fedbug(world: World, percent: int, **terms: float) -> Tensor:
    """Frozen layers are tensors without a gradient, which PyTorch's own SGD leaves alone, decay and all."""
    w0 = world.start
    for _, lr, batches, p in world.rounds():
        w0 = w0 + weighted(p, [unfreezing(w0, b, lr, percent, **terms) for b in batches])
    return w0


def unfreezing(
    w0: Tensor, batches: Batches, lr: float, percent: int, *, rho=0.0, shrink=0.0, clip=0.0, decay=0.0
) -> Tensor:
    """``shrink`` is weight decay that is clipped with the gradient, ``decay`` is added after it."""
    model = [(a.clone(), b.clone()) for a, b in layers(w0)]
    flat = [p for pair in model for p in pair]
    sgd = torch.optim.SGD(flat, lr, weight_decay=decay)
    for k, (x, y) in enumerate(batches, start=1):
        free = unfrozen(k, len(batches), percent)
        moving = [p for pair in model[:free] for p in pair]
        for p in flat:
            p.requires_grad_(any(p is q for q in moving))
        backward(model, sgd, x, y)
        if rho:
            climb(moving, model, sgd, x, y, rho)
        for p in moving:
            p.grad += shrink * p.detach()
        if clip:
            shorter = min(1.0, clip / float(total(moving)))
            for p in moving:
                p.grad *= shorter
        sgd.step()
    return torch.cat([p.detach().flatten() for p in flat]) - w0


def backward(model: list[tuple[Tensor, Tensor]], sgd: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
    sgd.zero_grad()
    F.cross_entropy(forward(model, x)[0], y).backward()


def total(moving: list[Tensor]) -> Tensor:
    return torch.sqrt(sum((p.grad**2).sum() for p in moving))


def climb(moving: list[Tensor], model: list, sgd: torch.optim.Optimizer, x: Tensor, y: Tensor, rho: float) -> None:
    """Replace the gradient by the one at the worst point nearby."""
    before, up, length = [p.detach().clone() for p in moving], [p.grad.clone() for p in moving], total(moving)
    with torch.no_grad():
        for p, g in zip(moving, up, strict=True):
            p += rho * g / length
    backward(model, sgd, x, y)
    with torch.no_grad():
        for p, old in zip(moving, before, strict=True):
            p.copy_(old)


def fedbug_scaffold(world: World, percent: int) -> Tensor:
    """A layer's control variate is the mean of the gradients it had while it was free."""
    w0, c, own = world.start, torch.zeros_like(world.start), {}
    layer = torch.cat([torch.full((p.numel(),), i) for i, pair in enumerate(layers(w0)) for p in pair])
    for cohort, lr, batches, p in world.rounds():
        deltas, changes = [], []
        for i, b in zip(cohort, batches, strict=True):
            ci, w = own.get(i, torch.zeros_like(w0)), w0
            seen, times = torch.zeros_like(w0), torch.zeros_like(w0)
            for k, (x, y) in enumerate(b, start=1):
                free = unfrozen(k, len(b), percent)
                g, moves = gradient(w, x, y, free=free), (layer < free).double()
                seen, times = seen + moves * g, times + moves
                w = w - lr * moves * (g - ci + c)
            own[i] = torch.where(times > 0, seen / times.clamp(min=1), ci)
            deltas.append(w - w0)
            changes.append(own[i] - ci)
        w0, c = w0 + weighted(p, deltas), c + sum(changes) / len(world.clients)
    return w0


# -- the server ------------------------------------------------------------------------------------------------------
def serving(world: World, step: Callable[[Tensor, list[Tensor], list[int], Tensor], Tensor]) -> Tensor:
    """Plain local training; the server moves to ``step(w, deltas, K, p)``."""
    w = world.start
    for _, lr, batches, p in world.rounds():
        w = step(w, [descend(w, b, lr, plain) for b in batches], [len(b) for b in batches], p)
    return w


def uniform(world: World) -> Tensor:
    return serving(world, lambda w, deltas, K, p: w + sum(deltas) / len(deltas))


def fednova(world: World) -> Tensor:
    def step(w: Tensor, deltas: list[Tensor], K: list[int], p: Tensor) -> Tensor:
        tau = sum(share * k for share, k in zip(p, K, strict=True))
        return w + tau * weighted(p, [delta / k for delta, k in zip(deltas, K, strict=True)])

    return serving(world, step)


def normalized(world: World) -> Tensor:
    def step(w: Tensor, deltas: list[Tensor], K: list[int], p: Tensor) -> Tensor:
        return w + sum(d.norm() for d in deltas) / len(deltas) * sum(deltas) / sum(deltas).norm()

    return serving(world, step)


def fedavgm(world: World, beta: float, eta: float) -> Tensor:
    m = torch.zeros_like(world.start)

    def step(w: Tensor, deltas: list[Tensor], K: list[int], p: Tensor) -> Tensor:
        nonlocal m
        m = beta * m + weighted(p, deltas)
        return w + eta * m

    return serving(world, step)


def adaptive(world: World, eta: float, beta1: float, tau: float, second: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    m, v = torch.zeros_like(world.start), torch.full_like(world.start, tau**2)

    def step(w: Tensor, deltas: list[Tensor], K: list[int], p: Tensor) -> Tensor:
        nonlocal m, v
        u = weighted(p, deltas)
        m, v = beta1 * m + (1 - beta1) * u, second(v, u)
        return w + eta * m / (v.sqrt() + tau)

    return serving(world, step)


def fedadam(world: World, eta: float, beta1: float, beta2: float, tau: float) -> Tensor:
    return adaptive(world, eta, beta1, tau, lambda v, u: beta2 * v + (1 - beta2) * u * u)


def fedadagrad(world: World, eta: float, beta1: float, tau: float) -> Tensor:
    return adaptive(world, eta, beta1, tau, lambda v, u: v + u * u)


def fedyogi(world: World, eta: float, beta1: float, beta2: float, tau: float) -> Tensor:
    return adaptive(world, eta, beta1, tau, lambda v, u: v - (1 - beta2) * u * u * torch.sign(v - u * u))


def fedexp(world: World, eps: float) -> Tensor:
    models = [world.start]

    def step(w: Tensor, deltas: list[Tensor], K: list[int], p: Tensor) -> Tensor:
        mean = sum(deltas) / len(deltas)
        eta = sum((d**2).sum() for d in deltas) / (2 * len(deltas) * ((mean**2).sum() + eps))
        models.append(w + max(1.0, float(eta)) * mean)
        return models[-1]

    serving(world, step)
    return (models[-1] + models[-2]) / 2
