"""The fast engine: the whole cohort as one batch, by ``torch.func.vmap`` over clients.

Clients of different sizes are padded: short batches carry a mask, and clients are sorted by their number of steps, so
that those still busy at a step are the first rows and only these are computed. A cohort too large for memory is
trained in slices, with the same result.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.utils._pytree import tree_flatten, tree_map

from holdfast.engines.client_update import Broadcast, ClientInfo, ClientUpdate, Objective, PerPart, settle
from holdfast.engines.cohort import Cohort, Trained, join
from holdfast.engines.cuda_graph import (
    CapturedStep,
    CohortShape,
    StepInputs,
    StepState,
    fixed_part,
    own,
    shape_of,
    with_idle_rows,
)
from holdfast.method.part import Batch, Gradient, Part


class Vector:
    """Trains a cohort at once. ``slice`` limits how many clients are trained together; None means: what fits."""

    name = "vector"

    def __init__(
        self, local: ClientUpdate, slice: int | None = None, room: CohortShape | None = None, compiled: bool = False
    ) -> None:
        self.local, self.slice, self.room, self.compiled = local, slice, room, compiled
        self.replays: dict[tuple[object, ...], CapturedStep] = {}
        # Under vmap even a hook that nobody fills costs half a millisecond.
        self._begin = vmap(local.begin, in_dims=(None, 0, 0)) if local.by_hook["begin"] else lambda *_: {}
        self._epoch = vmap(local.epoch, in_dims=(None, 0, 0, 0, 0, None))
        self._end = vmap(local.end, in_dims=(None, 0, 0, 0, 0)) if local.by_hook["end"] else plain_end
        self._gradient = vmap(partial(local.full_gradient, differentiate), in_dims=(None, 0, None))
        self._step = vmap(self._one_step, in_dims=(None, 0, 0, 0, 0, 0, 0, 0, 0, None))

    def train(self, job: Broadcast, cohort: Cohort) -> Trained:
        order = sorted(range(cohort.size), key=lambda i: -cohort.plan.steps[i])
        sorted_already = order == list(range(cohort.size))
        if not sorted_already:
            cohort = cohort.pick(order)
        width = self.slice or fitting(self.local, cohort)
        train = self._train
        if self.room is not None:
            width, train = min(width, self.room.rows), self._train_graph
        pieces = [train(job, cohort.rows(i, min(i + width, cohort.size))) for i in range(0, cohort.size, width)]
        found = join(pieces)
        if sorted_already:
            return found
        back = torch.argsort(torch.tensor(order, device=job.w0.device))
        uploads, states = tree_map(lambda t: t[back], (found.uploads, found.states))
        return Trained(found.deltas[back], uploads, states, found.loss[back])

    def gradients(self, job: Broadcast, cohort: Cohort, at: Tensor) -> Tensor:
        """Every client's full gradient at one model, [C, P]."""
        width = self.slice or fitting(self.local, cohort)
        slices = [cohort.rows(i, min(i + width, cohort.size)).who for i in range(0, cohort.size, width)]
        return torch.cat([self._gradient(job, who, at) for who in slices])

    def survey(self, job: Broadcast, who: ClientInfo, parts: Sequence[Part]) -> PerPart:
        """What parts measure at every client, with a client axis."""
        found: PerPart = vmap(partial(self.local.survey, parts), in_dims=(None, 0))(job, who)
        return found

    def _train(self, job: Broadcast, cohort: Cohort) -> Trained:
        who, plan = cohort.who, cohort.plan
        w = (job.w0.expand(cohort.size, -1) if cohort.start is None else cohort.start).clone()
        scratch = tree_map(torch.clone, self._begin(job, who, cohort.states))
        total = torch.zeros(cohort.size, dtype=w.dtype, device=w.device)
        k = torch.zeros(cohort.size, dtype=torch.int64, device=w.device)
        for e in range(plan.epochs):
            epoch = torch.tensor(e, device=w.device)
            scratch = tree_map(torch.clone, self._epoch(job, who, cohort.states, scratch, w, epoch))
            for s in range(max(plan.steps)):
                busy = sum(steps > s for steps in plan.steps)
                rows = ClientInfo(*(field[:busy] for field in who))
                states, now = tree_map(lambda t, b=busy: t[:b], (cohort.states, scratch))
                k[:busy] += 1
                index, mask = plan.index[:busy, e, s], plan.mask[:busy, e, s]
                key = self.local.augment_key(job, rows.id, k[:busy])
                x, y = self.local.federation.batch(index, rows.sigma, key)
                here = w[:busy], now
                *moved, loss = self._step(job, rows, states, now, w[:busy], x, y, mask, k[:busy], epoch)
                settle(tree_flatten(here)[0], tree_flatten(moved)[0])
                total[:busy] += loss
        deltas, uploads, states = self._end(job, who, cohort.states, scratch, w)
        return Trained(deltas, uploads, states, total / k.clamp(min=1))

    def _train_graph(self, job: Broadcast, cohort: Cohort) -> Trained:
        """The same, with every step a replay of one captured step: clients that are done idle along."""
        assert self.room is not None
        size = cohort.size
        cohort = with_idle_rows(cohort, self._width(size))
        w = job.w0.expand(cohort.size, -1) if cohort.start is None else cohort.start
        scratch = self._begin(job, cohort.who, cohort.states)
        zero = torch.zeros(cohort.size, dtype=w.dtype, device=w.device)
        fixed = fixed_part(job, cohort, self.room)
        moving = StepState(w, scratch, zero, zero.long(), fixed.most * 0)
        epochs, steps = cohort.plan.epochs, max(cohort.plan.steps)
        if not self.local.by_hook["epoch"]:
            epochs, steps = 1, steps * epochs
        for e in range(epochs):
            if self.local.by_hook["epoch"]:
                epoch = torch.full_like(fixed.most, e)
                scratch = self._epoch(job, cohort.who, cohort.states, moving.scratch, moving.w, epoch)
                moving = moving._replace(scratch=scratch)
            moving = self._replay(fixed, moving).steps(fixed, moving, steps)
        deltas, *rest = self._end(job, cohort.who, cohort.states, moving.scratch, moving.w)
        uploads, states = own(tree_map(lambda t: t[:size], rest))
        return Trained(deltas[:size], uploads, states, (moving.loss / moving.k.clamp(min=1))[:size])

    def _width(self, size: int) -> int:
        """The rows of the step that trains so many clients: all that there is room for, or half where they fit in.

        Each width is traced anew. Two of them spare the rest of a cohort, where chance decides how many take part, a
        step that is mostly idle.
        """
        assert self.room is not None
        full = min(self.slice or self.room.rows, self.room.rows)
        half = -(-full // 2)
        return half if size <= half else full

    def _replay(self, fixed: StepInputs, moving: StepState) -> CapturedStep:
        assert self.room is not None
        shape = shape_of(fixed, moving)
        if shape not in self.replays:
            self.replays[shape] = CapturedStep(self.local, self._step, fixed, moving, self.room.ragged, self.compiled)
        return self.replays[shape]

    def _one_step(
        self, job: Broadcast, who: ClientInfo, state: PerPart, scratch: PerPart, w: Tensor, x: Tensor, y: Tensor,
        mask: Tensor, k: Tensor, epoch: Tensor,
    ) -> tuple[Tensor, PerPart, Tensor]:  # fmt: skip
        return self.local.step(differentiate, job, who, state, scratch, w, Batch(x, y, mask), k, epoch)


def plain_end(
    job: Broadcast, who: ClientInfo, states: PerPart, scratch: PerPart, w: Tensor
) -> tuple[Tensor, PerPart, PerPart]:
    """The end of local training where no part has anything to add."""
    return w - job.w0, {}, states


def differentiate(objective: Objective, w: Tensor, rate: Tensor | None) -> Gradient:
    """The gradient as a function transform, which composes with ``vmap``."""
    g, (_, task) = grad_and_value(objective, has_aux=True)(w)
    return g, task


def fitting(local: ClientUpdate, cohort: Cohort) -> int:
    """How many clients to train at once: what fits into half of the memory (all of it, so that it never varies)."""
    net, batch = local.net, cohort.plan.index.shape[-1]
    models = 1 + len(local.by_hook["teachers"]) + len(local.by_hook["begin"])
    item = net.initial.element_size()
    vectors = (8 + 2 * len(local.method.parts)) * net.layout.size * item
    activations = 4 * models * batch * (net.footprint + net.inputs) * item
    return max(1, int(memory(net.device) / 2 // (vectors + activations)))


def memory(device: torch.device) -> float:
    """The bytes of the device."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[1])
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
