"""The rows of a traced step, and the clients that take turns in them: of one cohort, or of several runs' cohorts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from holdfast.engines.cohort import Cohort
from holdfast.engines.cuda_graph import copied
from holdfast.engines.local_training import Broadcast, ClientTask, LocalTraining
from holdfast.engines.row_schedule import Stretch, cut, schedule
from holdfast.engines.row_step import CohortShape, RowStep, StepInputs, StepState

MakeStep = Callable[[StepInputs, StepState], RowStep]
StartEpoch = Callable[[StepState, list[int], int], None]  # (state, clients, epoch); changes the clients' scratch


@dataclass(frozen=True)
class Trainees:
    """Clients that wait for a row of a step, train there, and come back.

    Attributes:
        inputs: What a step reads. Rows are clients.
        state: What a step changes, at the start of local training; training overwrites it.
        steps: The local steps of each client.
        per_epoch: The steps of each client's epochs.
        start_epoch: Called when clients start an epoch, except the first; None: nothing happens then.
    """

    inputs: StepInputs
    state: StepState
    steps: list[int]
    per_epoch: list[int]
    start_epoch: StartEpoch | None = None
    tensors: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", tree_flatten((self.inputs, self.state))[0])

    def shape(self) -> tuple[Any, ...]:
        """Return what must be equal for clients to take turns in the same rows."""
        names = repr(tree_flatten((self.inputs, self.state))[1])  # the object itself has no hash before torch 2.9
        return (names, *((t.shape[1:], t.dtype) for t in self.tensors))


class Rows(Protocol):
    """A place where clients are trained."""

    width: int

    def train(self, trainees: Sequence[Trainees]) -> None:
        """Take all local steps of all clients; their states are overwritten."""


class RowPool:
    """Trains clients in a fixed number of rows.

    Args:
        width: The number of rows.
        make_step: Traces a step for rows like these.
    """

    def __init__(self, width: int, make_step: MakeStep) -> None:
        self.width, self.make_step = width, make_step
        self.made: dict[tuple[Any, ...], RowStep] = {}

    def train(self, trainees: Sequence[Trainees]) -> None:
        """Take all local steps of all clients; their states are overwritten."""
        by_shape: dict[tuple[Any, ...], list[Trainees]] = {}
        for some in trainees:
            by_shape.setdefault(some.shape(), []).append(some)
        for shape, alike in by_shape.items():
            self._train(self._step(shape, alike[0]), alike)

    def _step(self, shape: tuple[Any, ...], example: Trainees) -> RowStep:
        if shape not in self.made:
            rows = tree_map(lambda t: t[:1].expand(self.width, *t.shape[1:]), (example.inputs, example.state))
            self.made[shape] = self.make_step(*rows)
        return self.made[shape]

    def _train(self, step: RowStep, trainees: Sequence[Trainees]) -> None:
        who = [(j, c) for j, some in enumerate(trainees) for c in range(len(some.steps))]
        who.sort(key=lambda at: -trainees[at[0]].steps[at[1]])
        plan = schedule([trainees[j].steps[c] for j, c in who], self.width)
        if any(some.start_epoch for some in trainees):
            plan = cut(plan, [trainees[j].per_epoch[c] for j, c in who])
        now = 0
        for time in sorted({t for s in plan for t in (s.start, s.end)}):
            for _ in range(time - now):
                step.run()
            now = time
            self._unload(step, trainees, places(who, (s for s in plan if s.end == time)))
            starting = [s for s in plan if s.start == time]
            start_epochs(trainees, who, starting)
            self._load(step, trainees, places(who, starting))

    def _load(self, step: RowStep, trainees: Sequence[Trainees], at: Iterator[tuple[int, int, int, int]]) -> None:
        for row, j, client, count in at:
            for buffer, own in zip(step.buffers, trainees[j].tensors, strict=True):
                if own.numel():
                    buffer[row : row + count].copy_(own[client : client + count])

    def _unload(self, step: RowStep, trainees: Sequence[Trainees], at: Iterator[tuple[int, int, int, int]]) -> None:
        for row, j, client, count in at:
            state = slice(-step.changed, None)
            for buffer, own in zip(step.buffers[state], trainees[j].tensors[state], strict=True):
                own[client : client + count].copy_(buffer[row : row + count])


class SharedRows:
    """One run's access to rows that several runs share.

    Args:
        width: The number of rows.
        submit: Hands in clients, and returns when they are trained.
    """

    def __init__(self, width: int, submit: Callable[[Sequence[Trainees]], object]) -> None:
        self.width, self.submit = width, submit

    def train(self, trainees: Sequence[Trainees]) -> None:
        """Take all local steps of all clients; their states are overwritten."""
        self.submit(trainees)


def places(who: Sequence[tuple[int, int]], stretches: Iterable[Stretch]) -> Iterator[tuple[int, int, int, int]]:
    """Yield (row, number of the trainees, client, count): neighbouring clients in neighbouring rows are copied at once.

    Args:
        who: The number of the trainees and the client, for each client of the schedule.
        stretches: Part of the schedule.
    """
    found = sorted((s.row, *who[s.client]) for s in stretches)
    while found:
        row, j, client = found[0]
        count = 1
        while count < len(found) and found[count] == (row + count, j, client + count):
            count += 1
        yield row, j, client, count
        found = found[count:]


def start_epochs(trainees: Sequence[Trainees], who: Sequence[tuple[int, int]], starting: Sequence[Stretch]) -> None:
    """Tell those clients that start an epoch, except their first."""
    clients: dict[tuple[int, int], list[int]] = {}
    for s in starting:
        j, c = who[s.client]
        epoch, rest = divmod(s.first, trainees[j].per_epoch[c])
        if epoch and not rest:
            clients.setdefault((j, epoch), []).append(c)
    for (j, epoch), some in clients.items():
        start = trainees[j].start_epoch
        if start is not None:
            start(trainees[j].state, sorted(some), epoch)


def waiting(
    broadcast: Broadcast,
    cohort: Cohort,
    training: LocalTraining,
    shape: CohortShape,
    state: StepState,
    start_epoch: StartEpoch | None,
) -> Trainees:
    """Return the clients of a cohort at the start of local training.

    Args:
        broadcast: What the server sends.
        cohort: The clients.
        training: The local training of their run.
        shape: The shape of a row's samples.
        state: Their state.
        start_epoch: Called when clients start an epoch, except the first; None: nothing happens then.

    Returns:
        The clients. The clients' own sample lists are left out, since no step needs them.
    """
    plan, size, device = cohort.plan, cohort.size, broadcast.w0.device
    sent = tree_map(lambda t: t.expand(size, *t.shape), broadcast)
    nothing = cohort.info.samples[:, :0]
    info = cohort.info._replace(samples=nothing, valid=nothing)
    numbers = tree_map(lambda number: broadcast.w0.new_full((size,), number), training.numbers())
    task = ClientTask(sent, info, cohort.states, torch.full_like(cohort.info.id, training.seed), numbers)
    per_epoch = torch.tensor(plan.steps, device=device)
    samples, mask = (shape.fill(t) for t in consecutive(plan.index, plan.mask, per_epoch))
    inputs = StepInputs(task, samples, mask, per_epoch)
    return Trainees(inputs, copied(state), plan.total, plan.steps, start_epoch)


def consecutive(index: Tensor, mask: Tensor, per_epoch: Tensor) -> tuple[Tensor, Tensor]:
    """Return the batches [C, E * S, B] of a plan [C, E, S, B] with every client's own one after the other."""
    _, epochs, most, batch = index.shape
    epoch = torch.arange(epochs * most, device=index.device) // per_epoch[:, None]
    step = torch.arange(epochs * most, device=index.device) % per_epoch[:, None]
    at = (epoch * most + step).clamp(max=epochs * most - 1)[..., None].expand(-1, -1, batch)
    return index.flatten(1, 2).gather(1, at), mask.flatten(1, 2).gather(1, at)
