"""Which runs may be one batch: those that differ in nothing but what is an input of a row of a captured step."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.comparison.planned_run import PlannedRun
from holdfast.core.devices import pick_device
from holdfast.method.config import FLAG_PARTS, Config
from holdfast.method.flag_parts import with_flag_parts
from holdfast.method.step_numbers import built_in

MOST = 8  # runs in a batch; more do not make a client's step cheaper
PER_RUN = ("seed", "split_seed", "lr", "lr_decay", "lr_schedule", "server_lr")  # in what runs of a batch may differ
OF_METHOD = ("method", "optimizer", *FLAG_PARTS)  # compared as a method


def batches(tasks: Sequence[PlannedRun], wanted: bool | None, jobs: int = 1) -> list[list[PlannedRun]]:
    """Group runs that may share steps.

    Args:
        tasks: The runs.
        wanted: Whether they should; None: on a GPU.
        jobs: The processes that carry out the groups, none of which should be without work.

    Returns:
        The groups, in the order of their first runs; a run that shares nothing is a group of its own.
    """
    found: list[list[PlannedRun]] = []
    most = min(MOST, -(-len(tasks) // jobs))
    for task in tasks:
        fitting = (g for g in found if len(g) < most and wants_company(task.config, wanted) and alike(g[0], task))
        group = next(fitting, None)
        if group is None:
            found.append([task])
        else:
            group.append(task)
    return found


def wants_company(config: Config, wanted: bool | None) -> bool:
    """Tell whether a run may be part of a batch, as far as its config says."""
    if wanted is None:
        wanted = pick_device(config.device).type == "cuda"
    return wanted and config.engine in ("auto", "vector")


def alike(one: PlannedRun, other: PlannedRun) -> bool:
    """Tell whether two runs differ in nothing but inputs of a row."""
    if one.until != other.until:
        return False
    same = {name: getattr(one.config, name) for name in (*PER_RUN, *OF_METHOD)}
    return other.config.changed(**same) == one.config and in_steps_of(one) == in_steps_of(other)


def in_steps_of(task: PlannedRun) -> tuple[object, ...]:
    """Return what a step has built in of a run's method with the parts that its flags stand for."""
    return built_in(with_flag_parts(task.method, task.config))
