"""What a worker on another machine does: the machines share the folder of the runs, and whatever the runs read."""

from __future__ import annotations

import os
import pickle
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from holdfast.comparison.executor import Executor
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.pool import failure, files_of
from holdfast.comparison.worker_pool import Event, RunEnded
from holdfast.core.errors import HoldfastError
from holdfast.core.folder_lock import FolderInUse
from holdfast.core.user_files import import_file
from holdfast.training.round_record import RoundRecord

PATIENCE = 5.0  # seconds between two attempts to get the folder of a run
OURS = "HOLDFAST_"  # environment variables that a worker takes over begin with this


@dataclass(frozen=True)
class Luggage:
    """What a worker on another machine needs, as bytes: a user's classes are known there once their files are imported.

    Attributes:
        place: The working directory of the command.
        environment: Variables that the worker takes over.
        files: The user's files of code.
        content: The executor and the runs, pickled.
        light: Whether to delete the checkpoints of finished runs.
        threads: The number of torch threads; None leaves it as it is.
    """

    place: str
    environment: dict[str, str]
    files: list[str]
    content: bytes
    light: bool
    threads: int | None

    @classmethod
    def pack(cls, executor: Executor, tasks: Sequence[PlannedRun], light: bool, threads: int | None) -> Luggage:
        """Pack the executor and all runs.

        Args:
            executor: Carries out runs.
            tasks: The runs, whose folders may be relative to the working directory.
            light: Whether to delete the checkpoints of finished runs.
            threads: The number of torch threads.

        Returns:
            The luggage.
        """
        absolute = [replace(task, folder=task.folder.absolute()) for task in tasks]
        ours = {name: value for name, value in os.environ.items() if name.startswith(OURS)}
        files = [str(Path(file).absolute()) for file in files_of(tasks)]
        try:
            content = pickle.dumps((executor, absolute))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise HoldfastError(
                f"the model or the data cannot be sent to the workers ({error}): define them at the top level of a "
                "module, or use --executor process with one job"
            ) from error
        return cls(os.getcwd(), ours, files, content, light, threads)


class RemoteWorker:
    """Carries out runs on the machine where it is made."""

    def __init__(self, luggage: Luggage) -> None:
        if not os.path.isdir(luggage.place):
            raise HoldfastError(
                f"{platform.node()} does not have the folder {luggage.place}: start the command in a folder that "
                "all machines share"
            )
        os.chdir(luggage.place)
        os.environ.update(luggage.environment)
        if luggage.threads is not None:
            torch.set_num_threads(luggage.threads)
        for file in luggage.files:
            import_file(Path(file))
        self.executor, self.tasks = pickle.loads(luggage.content)
        self.light = luggage.light

    def carry_out(self, number: int, on_round: Callable[[RoundRecord], None], stop: Callable[[], bool]) -> Event:
        """Start or resume a run, and return how it ended.

        A worker of an earlier command that was killed may still be at it. Then this one waits, and takes over what that
        one leaves.

        Args:
            number: The number of the run.
            on_round: Called after every round.
            stop: Asked after every round whether to stop.

        Returns:
            The end of the run, or its failure.
        """
        task = self.tasks[number]
        try:
            while not stop():
                state = task.state()
                if state in ("finished", "diverged"):
                    return RunEnded(state, "")
                try:
                    return RunEnded(*self.executor.run(task, on_round, stop, self.light))
                except FolderInUse:
                    time.sleep(PATIENCE)
            return RunEnded("stopped", "")
        except Exception as error:
            return failure(error)
