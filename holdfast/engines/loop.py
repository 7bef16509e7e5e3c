"""The reference engine: each client by itself, on exactly its own samples, with plain autograd.

On a CPU several clients may train side by side, each in a thread of its own on one core: a convolution keeps one core
busier than several cores keep each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.engines.allocator import keep_freed_memory
from holdfast.engines.client_update import Broadcast, ClientInfo, ClientUpdate, Objective, PerPart, unshared
from holdfast.engines.cohort import Cohort, Trained, stack
from holdfast.method.part import Batch, Gradient, Part, Tensors

CACHED = 2**17  # numbers that a core's cache holds twice


class Loop:
    """Trains a cohort client by client, ``workers`` of them at a time."""

    name = "loop"

    def __init__(self, local: ClientUpdate, workers: int = 1) -> None:
        self.local = local
        self.mine = threading.local()  # a worker's own training: a module is not safe to share between threads
        self.pool = ThreadPoolExecutor(workers, initializer=self._hire) if workers > 1 else None
        if workers > 1:
            keep_freed_memory()

    def train(self, job: Broadcast, cohort: Cohort) -> Trained:
        rows = self._each(lambda i: self._client(job, cohort, i), cohort.size)
        deltas, uploads, states, losses = zip(*rows, strict=True)
        return Trained(torch.stack(deltas), stack(list(uploads)), stack(list(states)), torch.stack(losses))

    def gradients(self, job: Broadcast, cohort: Cohort, at: Tensor) -> Tensor:
        """Every client's full gradient at one model, [C, P]."""

        def one(i: int) -> Tensor:
            return self._local().full_gradient(self.differentiate, job, exact(cohort.who, i), at)

        return torch.stack(self._each(one, cohort.size))

    def survey(self, job: Broadcast, who: ClientInfo, parts: Sequence[Part]) -> PerPart:
        """What parts measure at every client, with a client axis."""
        return stack(self._each(lambda i: self._local().survey(parts, job, exact(who, i)), len(who.id)))

    def _each(self, one: Callable[[int], Any], clients: int) -> list[Any]:
        """``one`` of every client, in their order."""
        return list(map(one, range(clients)) if self.pool is None else self.pool.map(one, range(clients)))

    def _hire(self) -> None:
        torch.set_num_threads(1)
        self.mine.local = self.local.twin()

    def _local(self) -> ClientUpdate:
        found: ClientUpdate = getattr(self.mine, "local", self.local)
        return found

    def _client(self, job: Broadcast, cohort: Cohort, i: int) -> tuple:
        local, plan = self._local(), cohort.plan
        who, state = exact(cohort.who, i), tree_map(lambda t: t[i], cohort.states)
        w = job.w0.clone() if cohort.start is None else cohort.start[i].clone()
        scratch = local.begin(job, who, state)
        total, k = torch.zeros_like(job.lr), torch.zeros((), dtype=torch.int64, device=w.device)
        for e in range(plan.epochs):
            epoch = torch.full_like(k, e)
            scratch = unshared(local.epoch(job, who, state, scratch, w, epoch), w)
            for s in range(plan.steps[i]):
                k = k + 1
                index = plan.index[i, e, s][plan.mask[i, e, s]]
                x, y = local.federation.batch(index, who.sigma, local.augment_key(job, who.id, k))
                batch = Batch(x, y, torch.ones_like(y, dtype=torch.bool))
                _, scratch, loss = local.step(
                    self.differentiate, job, who, state, scratch, w, batch, k, epoch, out=w, descend=self.descend
                )
                total = total + loss
        delta, uploads, states = local.end(job, who, state, scratch, w)
        return delta, uploads, states, total / max(1, int(k))

    def differentiate(self, objective: Objective, w: Tensor, rate: Tensor | None) -> Gradient:
        """The gradient by autograd. Parameters that are frozen as a whole are not differentiated at all."""
        layout = self.local.net.layout
        moving = [True] * len(layout.names)
        if rate is not None and rate.dim():
            moving = torch.stack([r.any() for r in torch.split(rate, layout.sizes)]).tolist()
        grads, task = self._pieces(objective, w, moving)
        return layout.join(grads).to(w.dtype), task

    def descend(self, objective: Objective, w: Tensor, eta: Tensor) -> Tensor:
        """Move ``w`` itself down its gradient, parameter by parameter: nobody wants to see that gradient as a whole."""
        layout = self.local.net.layout
        grads, task = self._pieces(objective, w, [True] * len(layout.names))
        for name, piece in layout.split(w).items():
            subtract(piece, eta, grads[name])
        return task

    def _pieces(self, objective: Objective, w: Tensor, moving: list[bool]) -> tuple[Tensors, Tensor]:
        """The gradient of every parameter, zero where it does not move, and the task loss."""
        pieces = self.local.net.leaves(w)
        free = {name: p for (name, p), moves in zip(pieces.items(), moving, strict=True) if moves}
        for p in free.values():
            p.requires_grad_()
        total, task = objective(pieces)
        grads = {name: torch.zeros_like(p) for name, p in pieces.items() if name not in free}
        if free:
            found = torch.autograd.grad(total, list(free.values()), allow_unused=True, materialize_grads=True)
            grads |= dict(zip(free, found, strict=True))
        return grads, task.detach()


def subtract(piece: Tensor, eta: Tensor, g: Tensor) -> None:
    """``piece -= eta * g``. A gradient of lower precision is converted in portions that fit a core's cache."""
    if g.dtype == piece.dtype:
        piece.addcmul_(eta, g, value=-1)
        return
    for some, part in zip(torch.split(piece.view(-1), CACHED), torch.split(g.reshape(-1), CACHED), strict=True):
        some.addcmul_(eta, part.to(some.dtype), value=-1)


def exact(who: ClientInfo, i: int) -> ClientInfo:
    """Client ``i`` without padding."""
    one = ClientInfo(*(field[i] for field in who))
    n = int(one.n)
    return one._replace(own=one.own[:n], there=one.there[:n])
