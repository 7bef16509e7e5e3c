"""The fast engine: the whole cohort as one batch, by ``torch.func.vmap`` over clients.

Clients of different sizes are padded: short batches carry a mask. Clients are sorted by their number of steps, so that
those still training at a step are the first rows and only these are computed. A cohort too large for memory is
trained in slices, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.utils._pytree import tree_map

from holdfast.core.tensors import PerPart, Tensors
from holdfast.engines.allocator import keep_freed_memory
from holdfast.engines.chain_steps import ChainSteps
from holdfast.engines.cohort import Cohort, CohortUpdate, join
from holdfast.engines.eager_steps import EagerSteps, EpochState
from holdfast.engines.local_training import (
    CLIENT_AXES,
    BatchResult,
    Broadcast,
    ClientInfo,
    ClientTask,
    LocalTraining,
    Objective,
)
from holdfast.engines.row_pool import RowPool, Rows, waiting
from holdfast.engines.row_step import ROW_AXES, CohortShape, RowStep, StepInputs, StepState
from holdfast.engines.slice_width import clients_that_fit
from holdfast.engines.stacked_step import STEP_AXES, StackedStep, can_stack
from holdfast.engines.thread_groups import ThreadGroups
from holdfast.method.part import Part


class Vector:
    """Trains a whole cohort at a time.

    Args:
        training: The local training under a method.
        slice: The most clients to train at a time; None: as many as fit in memory.
        shape: The shape that all clients fit into, if steps are to be traced; None: they are not.
        compiled: Whether to compile traced steps.
        workers: How many groups of dense clients train at the same time, if their steps are not traced.
    """

    name = "vector"

    def __init__(
        self,
        training: LocalTraining,
        slice: int | None = None,
        shape: CohortShape | None = None,
        compiled: bool = False,
        workers: int = 1,
    ) -> None:
        self.stacked = shape is None and can_stack(training)
        if self.stacked:
            keep_freed_memory()
        self.training, self.slice, self.shape, self.compiled = training, slice, shape, compiled
        # Under vmap even a hook that no part fills costs half a millisecond.
        self._begin = vmap(training.begin, in_dims=(CLIENT_AXES,)) if training.begins else lambda *_: {}
        self._epoch = vmap(training.epoch, in_dims=(CLIENT_AXES, 0, 0, None))
        self._end = vmap(training.end, in_dims=(CLIENT_AXES, 0, 0)) if training.ends else plain_end
        self._gradient = vmap(partial(training.full_gradient, differentiate), in_dims=(None, 0, None))
        self._start = vmap(training.start, in_dims=(CLIENT_AXES,))
        vmapped = vmap(self._one_step, in_dims=STEP_AXES)
        stacked = StackedStep(training) if self.stacked else None
        self._step: Callable[..., tuple[Tensor, PerPart, Tensor]] = stacked or vmapped
        self._steps = steps_of(training, self._step, ThreadGroups(workers if self.stacked else 1))
        self.rows: Rows | None = None
        if shape is not None:
            self.rows = RowPool(min(shape.rows, self.width(shape.batch)), self.traced_step)

    def train(self, broadcast: Broadcast, cohort: Cohort) -> CohortUpdate:
        """Train every client of the cohort."""
        first = cohort.plan.steps_in(0)
        order = sorted(range(cohort.size), key=lambda i: (-first[i], -cohort.plan.passes[i]))
        sorted_already = order == list(range(cohort.size))
        if not sorted_already:
            cohort = cohort.pick(order)
        width = self.width(cohort.plan.index.shape[-1])
        train = self._train if self.rows is None else self._train_in_rows
        slices = [train(broadcast, cohort.rows(i, min(i + width, cohort.size))) for i in range(0, cohort.size, width)]
        update = join(slices)
        if sorted_already:
            return update
        return update.rows(torch.argsort(torch.tensor(order, device=broadcast.w0.device)))

    def width(self, batch: int) -> int:
        """Return the most clients to train at a time with batches of this size."""
        return self.slice or clients_that_fit(self.training, batch if self.shape is None else self.shape.batch)

    def gradients(self, cohort: Cohort, at: Tensor, stats: Tensors) -> Tensor:
        """Return every client's full gradient at one model with its running statistics, [C, P]."""
        width = self.width(cohort.plan.index.shape[-1])
        slices = [cohort.rows(i, min(i + width, cohort.size)).info for i in range(0, cohort.size, width)]
        return torch.cat([self._gradient(stats, info, at) for info in slices])

    def survey(self, broadcast: Broadcast, info: ClientInfo, parts: Sequence[Part]) -> PerPart:
        """Return what parts measure at every client, with a client axis."""
        found: PerPart = vmap(partial(self.training.survey, parts), in_dims=(None, 0))(broadcast, info)
        return found

    def _train(self, broadcast: Broadcast, cohort: Cohort) -> CohortUpdate:
        info, size = cohort.info, cohort.size
        task = ClientTask(broadcast, info, cohort.states)
        w = self._starts(task, cohort).clone()
        zero = torch.zeros(size, dtype=w.dtype, device=w.device)
        state = EpochState(w, tree_map(torch.clone, self._begin(task)), zero, zero.long())
        for e in range(cohort.plan.epochs):
            steps = cohort.plan.steps_in(e)
            rows = sorted(cohort.plan.training_in(e), key=lambda i: -steps[i])
            if rows == list(range(size)):
                state = self._train_epoch(broadcast, cohort, state, e)
                continue
            at = torch.tensor(rows, device=w.device)
            some = self._train_epoch(broadcast, cohort.pick(rows), tree_map(lambda t, at=at: t[at], state), e)
            state = tree_map(lambda old, new, at=at: old.index_copy(0, at, new), state, some)
        deltas, uploads, states = self._end(task, state.scratch, state.w)
        return CohortUpdate(info.id, info.n, info.K, deltas, uploads, states, state.loss / state.k.clamp(min=1))

    def _train_epoch(self, broadcast: Broadcast, cohort: Cohort, state: EpochState, e: int) -> EpochState:
        """Train clients for one epoch; all of them take part in it. The state is overwritten."""
        epoch = torch.tensor(e, device=state.w.device)
        if self.training.by_hook["epoch"]:
            task = ClientTask(broadcast, cohort.info, cohort.states)
            scratch = self._epoch(task, state.scratch, state.w, epoch)
            state = state._replace(scratch=tree_map(torch.clone, scratch))
        self._steps.take(broadcast, cohort, state, epoch)
        return state

    def _train_in_rows(self, broadcast: Broadcast, cohort: Cohort) -> CohortUpdate:
        """Do the same with every step a repetition of one traced step, in whose rows the clients take turns."""
        assert self.shape is not None
        assert self.rows is not None
        info, task = cohort.info, ClientTask(broadcast, cohort.info, cohort.states)
        w = self._starts(task, cohort)
        zero = torch.zeros(cohort.size, dtype=w.dtype, device=w.device)
        state = StepState(w, self._begin(task), zero, zero.long())
        start_epoch = None
        if self.training.by_hook["epoch"]:
            state = state._replace(scratch=self._epoch(task, state.scratch, w, torch.zeros_like(state.k[0])))
            start_epoch = partial(self._start_epoch, broadcast, cohort)
        trainees = waiting(broadcast, cohort, self.training, self.shape, state, start_epoch)
        self.rows.train([trainees])
        state = trainees.state
        deltas, uploads, states = self._end(task, state.scratch, state.w)
        return CohortUpdate(info.id, info.n, info.K, deltas, uploads, states, state.loss / state.k.clamp(min=1))

    def _start_epoch(
        self, broadcast: Broadcast, cohort: Cohort, state: StepState, clients: list[int], epoch: int
    ) -> None:
        """Start an epoch of some clients; their scratch is overwritten.

        It is computed for the whole cohort: who else starts an epoch at the same time must not change a bit.
        """
        at = torch.tensor(clients, device=state.k.device)
        task = ClientTask(broadcast, cohort.info, cohort.states)
        new = self._epoch(task, state.scratch, state.w, torch.full_like(state.k[0], epoch))
        tree_map(lambda old, all: old.index_copy_(0, at, all[at]), state.scratch, new)

    def share(self, rows: Rows, slots: int) -> None:
        """Train in rows that several runs share, in which a client may take up to ``slots`` steps."""
        assert self.shape is not None
        self.rows, self.shape = rows, replace(self.shape, rows=rows.width, slots=slots)

    def traced_step(self, inputs: StepInputs, state: StepState) -> RowStep:
        """Trace the local step for rows like these."""
        return RowStep(self.training, vmap(self._one_step, in_dims=ROW_AXES), inputs, state, self.compiled)

    def _starts(self, task: ClientTask, cohort: Cohort) -> Tensor:
        """Return the model from which each client starts, [C, P]."""
        if cohort.start is not None:
            return cohort.start
        shared = task.broadcast.w0.expand(cohort.size, -1)
        return self._start(task) if len(self.training.net.kept) else shared

    def _one_step(
        self, task: ClientTask, scratch: PerPart, w: Tensor, x: Tensor, y: Tensor, mask: Tensor, k: Tensor,
        epoch: Tensor,
    ) -> tuple[Tensor, PerPart, Tensor]:  # fmt: skip
        training = self.training.with_numbers(task.numbers) if task.numbers else self.training
        return training.step(differentiate, task, scratch, w, training.federation.as_batch(x, y, mask), k, epoch)


def steps_of(
    training: LocalTraining, step: Callable[..., tuple[Tensor, PerPart, Tensor]], groups: ThreadGroups
) -> ChainSteps | EagerSteps:
    """Return how the steps of an epoch are taken if they are not traced."""
    if not isinstance(step, StackedStep):
        return EagerSteps(training, step, groups, lambda: False)
    if training.plain and step.chain is not None:
        return ChainSteps(training, step.chain, groups)
    return EagerSteps(training, step, groups, step.parallel)


def plain_end(task: ClientTask, scratch: PerPart, w: Tensor) -> tuple[Tensor, PerPart, PerPart]:
    """End local training where no part has anything to add."""
    return w - task.broadcast.w0, {}, task.state


def differentiate(objective: Objective, w: Tensor, rate: Tensor | None) -> tuple[Tensor, BatchResult]:
    """Return the gradient by a function transform, which composes with ``vmap``."""
    g, (_, result) = grad_and_value(objective, has_aux=True)(w)
    return g, result
