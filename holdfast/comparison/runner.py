"""Carry out many runs, in this process or in several; finished runs are never repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.comparison.executor import Executor
from holdfast.comparison.observers import Observer
from holdfast.comparison.plan_schema import PROCESS
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.pool_choice import make_pool
from holdfast.comparison.run_batch import run_groups
from holdfast.comparison.stored_run import read_run
from holdfast.comparison.together import batches
from holdfast.core.errors import HoldfastError


def run_all(
    tasks: Sequence[PlannedRun],
    executor: Executor,
    jobs: int = 1,
    watch: Observer | None = None,
    stop: Callable[[], bool] = lambda: False,
    light: bool = False,
    where: str = PROCESS,
    together: bool | None = False,
) -> bool:
    """Run all tasks that are not done yet.

    Args:
        tasks: All runs, done or not.
        executor: Runs them.
        jobs: Runs at a time.
        watch: Observes every round and run.
        stop: Asked after every round whether to stop.
        light: Delete the checkpoints of finished runs.
        where: The workers: processes of this machine, Ray or SLURM; see ``pool_choice``.
        together: Whether runs that differ in nothing but their seeds and rates share steps; None: on a GPU.

    Returns:
        Whether every run is finished or diverged.
    """
    watch = watch or Observer()
    states = [task.state() for task in tasks]
    left = [task for task, state in zip(tasks, states, strict=True) if state in ("new", "started")]
    watch.begin(tasks, states)
    try:
        if left and (where != PROCESS or (jobs > 1 and len(left) > 1)):
            return make_pool(where, min(jobs, len(left)), executor, light, together).run(left, watch, stop)
        return run_groups(batches(left, together), executor, watch, stop, light)
    finally:
        watch.close()


def refuse_damaged(tasks: Sequence[PlannedRun]) -> None:
    """Find finished runs that cannot be read, or were changed since, before any other run is started."""
    for task in tasks:
        if task.state() in ("finished", "diverged"):
            read_run(task.folder, task.config.seed)


def refuse_mixed_meanings(tasks: Sequence[PlannedRun]) -> None:
    """Refuse to add to runs that mean something else today; finished ones too, since they would be compared."""
    states = [task.state() for task in tasks]
    if not {"new", "started"} & set(states):
        return
    for task, state in zip(tasks, states, strict=True):
        before = None if state == "new" else task.changed_meaning()
        if before:
            raise HoldfastError(
                f"the run in {task.folder} is from an earlier version, in which {before}: choose another --out, or "
                "finish with that version"
            )
