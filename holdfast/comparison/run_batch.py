"""Carries out several runs as one batch: their clients take turns in the rows of one captured step.

Each run remains what it is alone: it has its folder, its server and its checkpoints, and is carried out by the same
code, in a thread of its own. Only one thread runs at any time. When every run waits for its clients, these are trained
together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from holdfast.comparison.executor import Executor, free_gpu_memory, rows_of
from holdfast.comparison.observers import Observer
from holdfast.comparison.planned_run import PlannedRun
from holdfast.core.devices import current_device
from holdfast.core.turns import TurnTaker
from holdfast.data.dataset import DataSet
from holdfast.engines.row_pool import RowPool, Trainees
from holdfast.engines.sharing import with_samples_of
from holdfast.engines.threads import suitable_threads
from holdfast.runs.setup import RunSetup, arithmetic, simulate
from holdfast.training.round import Trainer
from holdfast.training.shared_rows import room, share_rows, why_not
from holdfast.training.simulation import Simulation

Ask = Callable[[object], None]  # a thread waits in it until its clients are trained, or until the batch has begun


class CannotShare(Exception):
    """A run is not part of the batch; nothing of it has been written."""


@dataclass(frozen=True)
class BatchOutcome:
    """What became of a batch.

    Attributes:
        stopped: Whether a run was stopped before its end.
        alone: Runs that cannot share steps with the others, and have not been started.
        later: Runs for which there was no room, likewise.
    """

    stopped: bool = False
    alone: list[PlannedRun] = field(default_factory=list)
    later: list[PlannedRun] = field(default_factory=list)


@dataclass(frozen=True)
class Ready:
    """A run that waits to begin."""

    simulation: Simulation
    ask: Ask


@dataclass
class Member:
    """A run of a batch.

    Attributes:
        task: What to run.
        rows: How many rows its steps must have; None: any number.
        turn: Its thread.
    """

    task: PlannedRun
    rows: int | None
    turn: TurnTaker[object, None, tuple[str, str]]


class RunBatch:
    """Runs that are to share steps.

    Args:
        tasks: The runs, which are alike (``together.py``).
        executor: Carries out each of them.
        watch: Observes every round and run.
        stop: Asked after every round of every run whether to stop.
        light: Delete the checkpoints of finished runs.
    """

    def __init__(
        self, tasks: Sequence[PlannedRun], executor: Executor, watch: Observer, stop: Callable[[], bool], light: bool
    ) -> None:
        self.executor, self.watch, self.stop, self.light = executor, watch, stop, light
        self.data: DataSet | None = None  # of the first run, on the device
        self.stopped = False
        self.errors: list[BaseException] = []
        self.members = [Member(task, rows_of(task), TurnTaker(self._work(task))) for task in tasks]

    def run(self) -> BatchOutcome:
        """Carry out the runs. One that fails leaves the others alone; its error is raised when they have ended."""
        config = self.members[0].task.config
        try:
            with arithmetic(config.precision), current_device(config.device):
                outcome = self._run()
        finally:
            for member in self.members:
                member.turn.close()
            self.data = None
            free_gpu_memory()
        if self.errors:
            raise self.errors[0]
        return outcome

    def _work(self, task: PlannedRun) -> Callable[[Ask], tuple[str, str]]:
        """Return what the thread of a run does."""

        def work(ask: Ask) -> tuple[str, str]:
            @contextmanager
            def trainer(setup: RunSetup) -> Iterator[Trainer]:
                with simulate(self._with_shared_samples(setup)) as made:
                    assert isinstance(made, Simulation)
                    ask(Ready(made, ask))
                    yield made

            def on_round(record: object) -> None:
                self.watch.round(task, record)  # type: ignore[arg-type]

            return self.executor.carry_out(task, on_round, self.stop, self.light, trainer)

        return work

    def _with_shared_samples(self, setup: RunSetup) -> RunSetup:
        """Return a setup whose samples are in the same memory as those of the first run, where they are equal."""
        own = setup.federation.data
        self.data = self.data or own
        return replace(setup, federation=replace(setup.federation, data=with_samples_of(own, self.data)))

    def _run(self) -> BatchOutcome:
        asked = [(member, self._go(member)) for member in self.members]
        ready = [(member, found) for member, found in asked if isinstance(found, Ready)]
        if not ready:
            return BatchOutcome(self.stopped)
        with suitable_threads(ready[0][1].simulation.net):
            taken, alone, later = self._chosen(ready)
            if taken:
                self._share(taken)
        return BatchOutcome(self.stopped, alone, later)

    def _chosen(
        self, ready: list[tuple[Member, Ready]]
    ) -> tuple[list[tuple[Member, Ready]], list[PlannedRun], list[PlannedRun]]:
        """Return the runs that share steps, and send away those that cannot and those for which there is no room."""
        taken: list[tuple[Member, Ready]] = []
        alone, later = list[PlannedRun](), list[PlannedRun]()
        rows, clients = None, 0
        for member, run in ready:
            first = taken[0][1].simulation if taken else run.simulation
            why = why_not(first, run.simulation)
            if why is None and rows and member.rows and rows != member.rows:
                why = f"it began with steps of {member.rows} rows"
            more = 0 if why else max(map(len, run.simulation.foreseen()))
            if why is not None:
                self.watch.say(f"{member.task.label}, seed {member.task.config.seed} runs alone: {why}")
                alone.append(member.task)
                self._go(member, CannotShare())
            elif taken and clients + more > room(first):
                later.append(member.task)
                self._go(member, CannotShare())
            else:
                taken.append((member, run))
                rows, clients = rows or member.rows, clients + more
        return taken, alone, later

    def _share(self, taken: list[tuple[Member, Ready]]) -> None:
        """Let runs share the rows of one step, and carry them out."""
        rows = next((member.rows for member, _ in taken if member.rows), None)
        pool = share_rows([run.simulation for _, run in taken], [run.ask for _, run in taken], rows)
        if len(taken) > 1:
            labels = ", ".join(dict.fromkeys(member.task.label for member, _ in taken))
            self.watch.say(f"{len(taken)} runs of {labels} share steps of {pool.width} rows")
        self._play(pool, [member for member, _ in taken])

    def _play(self, pool: RowPool, waiting: list[Member]) -> None:
        """Let every run go on until it waits for its clients, train these together, and so on."""
        error: Exception | None = None
        while waiting:
            asked = [(member, self._go(member, error)) for member in waiting]
            trainees = [some for _, wanted in asked if isinstance(wanted, Sequence) for some in wanted]
            waiting, error = [member for member, wanted in asked if wanted is not None], None
            try:
                pool.train(trainees)
            except Exception as failure:
                error = failure

    def _go(self, member: Member, error: Exception | None = None) -> Ready | Sequence[Trainees] | None:
        """Let a run go on; return what it waits for, or None if it has ended."""
        asked = member.turn.go(refusal=error)
        if asked is not None:
            assert isinstance(asked, (Ready, Sequence))
            return asked
        failure = member.turn.error
        if failure is not None:
            self.errors += [] if isinstance(failure, CannotShare) else [failure]
        elif member.turn.result is not None:
            state, why = member.turn.result
            self.stopped = self.stopped or state == "stopped"
            self.watch.end(member.task, state, why)
        return None


def run_groups(
    waiting: list[list[PlannedRun]], executor: Executor, watch: Observer, stop: Callable[[], bool], light: bool
) -> bool:
    """Carry out runs in this process, group by group.

    Args:
        waiting: The runs; those of a group may share steps.
        executor: Runs them.
        watch: Observes every round and run.
        stop: Asked after every round whether to stop.
        light: Delete the checkpoints of finished runs.

    Returns:
        Whether every run is finished or diverged.
    """
    while waiting:
        group, *waiting = waiting
        if len(group) > 1:
            outcome = RunBatch(group, executor, watch, stop, light).run()
            waiting = [*([task] for task in outcome.alone), *([outcome.later] if outcome.later else []), *waiting]
            stopped = outcome.stopped
        else:
            (task,) = group
            state, why = executor.run(task, lambda record, task=task: watch.round(task, record), stop, light)  # type: ignore[misc]
            watch.end(task, state, why)
            stopped = state == "stopped"
        if stopped or stop():
            return not waiting and not stopped
    return True
