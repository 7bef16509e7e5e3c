"""Where runs are carried out, by the text of ``--executor``."""

from __future__ import annotations

from holdfast.comparison.executor import Executor
from holdfast.comparison.plan_schema import PROCESS
from holdfast.comparison.pool import ProcessPool
from holdfast.comparison.ray_pool import RayPool, refuse_silent
from holdfast.comparison.slurm_pool import Slurm, SlurmPool
from holdfast.comparison.worker_pool import WorkerPool
from holdfast.core.errors import HoldfastError
from holdfast.core.params import build, one

RAY, SLURM = "ray", "slurm"
ADDRESS = "ray://"
CLUSTER = "slurm"  # or "local", for tests


def check_pool(where: str) -> None:
    """Raise an error for workers that cannot be had, before anything is written."""
    if where != PROCESS:
        make_pool(where, 1, Executor(), light=False)


def make_pool(where: str, jobs: int, executor: Executor, light: bool, together: bool | None = False) -> WorkerPool:
    """Make the workers that a text asks for; an error says what is missing before anything is written.

    Args:
        where: ``process``, ``ray``, ``ray://host:port``, ``slurm`` or ``slurm(minutes=600, gpus=1)``.
        jobs: Runs at a time.
        executor: What carries out a run.
        light: Whether to delete the checkpoints of finished runs.
        together: Whether runs that are alike share steps in each process of this machine; None: on a GPU.

    Returns:
        The workers.
    """
    if where == PROCESS:
        return ProcessPool(jobs, executor, light, together)
    if where == RAY or where.startswith(ADDRESS):
        if where != RAY:
            refuse_silent(where)
        return RayPool(jobs, executor, light, None if where == RAY else where)
    if where.partition("(")[0].strip() == SLURM:
        return SlurmPool(jobs, executor, light, build(one(where, "executor"), {SLURM: Slurm}, "executor"), CLUSTER)
    raise HoldfastError(f"--executor must be process, ray, ray://host:port or slurm, not {where}")
