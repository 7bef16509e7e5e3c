"""The reference engine: each client by itself, on exactly its own samples, with plain autograd.

On a CPU several clients may train in parallel, each in a thread of its own on one core: a convolution keeps one core
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

from holdfast.core.tensors import PerPart, Tensors, stack
from holdfast.engines.allocator import keep_freed_memory
from holdfast.engines.cohort import Cohort, CohortUpdate
from holdfast.engines.local_training import (
    BatchResult,
    Broadcast,
    ClientInfo,
    ClientTask,
    LocalTraining,
    Objective,
    unshared,
)
from holdfast.engines.slice_width import clients_to_keep
from holdfast.method.part import Part

CACHED = 2**17  # numbers that fit twice into a core's cache


class Loop:
    """Trains a cohort client by client, ``workers`` of them at a time."""

    name = "loop"

    def __init__(self, training: LocalTraining, workers: int = 1) -> None:
        self.training = training
        self.thread = threading.local()  # holds a worker's own copy: a module must not be shared between threads
        self.pool = ThreadPoolExecutor(workers, initializer=self._start_worker) if workers > 1 else None
        if workers > 1:
            keep_freed_memory()

    def train(self, broadcast: Broadcast, cohort: Cohort) -> CohortUpdate:
        """Train every client of the cohort."""
        rows = self._each(lambda i: self._client(broadcast, cohort, i), cohort.size)
        deltas, uploads, states, losses = zip(*rows, strict=True)
        info = cohort.info
        return CohortUpdate(
            info.id, info.n, info.K, torch.stack(deltas), stack(uploads), stack(states), torch.stack(losses)
        )

    def width(self, batch: int) -> int:
        """Return the most clients whose results should be kept at a time."""
        return clients_to_keep(self.training)

    def gradients(self, cohort: Cohort, at: Tensor, stats: Tensors) -> Tensor:
        """Return every client's full gradient at one model with its running statistics, [C, P]."""

        def one(i: int) -> Tensor:
            return self._training().full_gradient(self.differentiate, stats, unpadded(cohort.info, i), at)

        return torch.stack(self._each(one, cohort.size))

    def survey(self, broadcast: Broadcast, info: ClientInfo, parts: Sequence[Part]) -> PerPart:
        """Return what parts measure at every client, with a client axis."""
        return stack(self._each(lambda i: self._training().survey(parts, broadcast, unpadded(info, i)), len(info.id)))

    def _each(self, one: Callable[[int], Any], clients: int) -> list[Any]:
        """Call ``one`` for every client and return the results in order."""
        return list(map(one, range(clients)) if self.pool is None else self.pool.map(one, range(clients)))

    def _start_worker(self) -> None:
        torch.set_num_threads(1)
        self.thread.training = self.training.for_thread()

    def _training(self) -> LocalTraining:
        own: LocalTraining = getattr(self.thread, "training", self.training)
        return own

    def _client(self, broadcast: Broadcast, cohort: Cohort, i: int) -> tuple[Tensor, PerPart, PerPart, Tensor]:
        training, plan = self._training(), cohort.plan
        info = unpadded(cohort.info, i)
        task = ClientTask(broadcast, info, tree_map(lambda t: t[i], cohort.states))
        w = training.start(task).clone() if cohort.start is None else cohort.start[i].clone()
        scratch = training.begin(task)
        total, k = torch.zeros_like(broadcast.lr), torch.zeros((), dtype=torch.int64, device=w.device)
        for e in range(plan.passes[i]):
            epoch = torch.full_like(k, e)
            scratch = unshared(training.epoch(task, scratch, w, epoch), w)
            for s in range(min(plan.steps[i], plan.total[i] - e * plan.steps[i])):
                k = k + 1
                index = plan.index[i, e, s][plan.mask[i, e, s]]
                x, y = training.federation.batch(index, info.sigma, training.augment_key(broadcast, info.id, k))
                everything = torch.ones(len(y), dtype=torch.bool, device=y.device)
                batch = training.federation.as_batch(x, y, everything, padded=False)
                _, scratch, loss = training.step(
                    self.differentiate, task, scratch, w, batch, k, epoch, out=w, descend=self.descend
                )
                total = total + loss
        delta, uploads, states = training.end(task, scratch, w)
        return delta, uploads, states, total / max(1, int(k))

    def differentiate(self, objective: Objective, w: Tensor, rate: Tensor | None) -> tuple[Tensor, BatchResult]:
        """Return the gradient by autograd. Parameters that are frozen as a whole are not differentiated at all."""
        layout = self.training.net.layout
        moving = [True] * len(layout.names)
        if rate is not None and rate.dim():
            moving = torch.stack([r.any() for r in torch.split(rate, layout.sizes)]).tolist()
        grads, result = self._pieces(objective, w, moving)
        return layout.join(grads).to(w.dtype), result

    def descend(self, objective: Objective, w: Tensor, eta: Tensor) -> BatchResult:
        """Move ``w`` itself down its gradient, parameter by parameter, where no part needs the gradient as a whole."""
        layout = self.training.net.layout
        grads, result = self._pieces(objective, w, [True] * len(layout.names))
        for name, piece in layout.split(w).items():
            subtract(piece, eta, grads[name])
        return result

    def _pieces(self, objective: Objective, w: Tensor, moving: list[bool]) -> tuple[Tensors, BatchResult]:
        """Return the gradient of every parameter, zero where it does not move, and what the pass gave beside it."""
        pieces = self.training.net.leaves(w)
        free = {name: p for (name, p), moves in zip(pieces.items(), moving, strict=True) if moves}
        for p in free.values():
            p.requires_grad_()
        total, result = objective(pieces)
        grads = {name: torch.zeros_like(p) for name, p in pieces.items() if name not in free}
        if free:
            found = torch.autograd.grad(total, list(free.values()), allow_unused=True, materialize_grads=True)
            grads |= dict(zip(free, found, strict=True))
        return grads, result._replace(loss=result.loss.detach())


def subtract(piece: Tensor, eta: Tensor, g: Tensor) -> None:
    """Compute ``piece -= eta * g``. A gradient of lower precision is converted in portions that fit a core's cache."""
    if g.dtype == piece.dtype:
        piece.addcmul_(eta, g, value=-1)
        return
    for some, part in zip(torch.split(piece.view(-1), CACHED), torch.split(g.reshape(-1), CACHED), strict=True):
        some.addcmul_(eta, part.to(some.dtype), value=-1)


def unpadded(info: ClientInfo, i: int) -> ClientInfo:
    """Return client ``i`` without padding."""
    one = ClientInfo(*(field[i] for field in info))
    n = int(one.n)
    return one._replace(samples=one.samples[:n], valid=one.valid[:n])
