"""Jobs of a SLURM cluster, submitted as one array through submitit; each carries out one run."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from holdfast.comparison.executor import Executor
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.remote_worker import Luggage, RemoteWorker
from holdfast.comparison.worker_pool import Event, RoundDone, RunFailed, WorkerDied, WorkerPool
from holdfast.core.errors import HoldfastError
from holdfast.core.params import Named, param
from holdfast.runs.history import read_history
from holdfast.runs.run_files import HISTORY

FOLDER = "slurm"  # of the jobs' logs, in the folder of all runs
STOP = "stop"  # a file there that asks all jobs to stop after their current round
LOOKS = 1.0  # seconds between two looks at the jobs
WAITING = ("PENDING", "REQUEUED")  # states of jobs that have not begun


@dataclass(frozen=True)
class Slurm(Named):
    """What every job asks of the cluster."""

    name: ClassVar[str] = "slurm"

    minutes: int = param(720, "the longest time of a job; a run that needs more goes on in another job", low=1)
    cpus: int = param(1, "cores of a job", low=1)
    gpus: int = param(0, "GPUs of a job", low=0)
    memory: int | None = param(None, "memory of a job in GB; default: the cluster's", low=1)
    partition: str | None = param(None, "partition; default: the cluster's")
    account: str | None = param(None, "account; default: yours")
    qos: str | None = param(None, "quality of service; default: the cluster's")

    def parameters(self, jobs: int) -> dict[str, Any]:
        """Return the parameters of submitit; at most ``jobs`` jobs of the array run at a time."""
        known = {
            "name": "holdfast", "timeout_min": self.minutes, "cpus_per_task": self.cpus, "gpus_per_node": self.gpus,
            "mem_gb": self.memory, "slurm_partition": self.partition, "slurm_account": self.account,
            "slurm_qos": self.qos, "slurm_array_parallelism": jobs,
        }  # fmt: skip
        return {name: value for name, value in known.items() if value}


def work(luggage: Luggage, number: int, stop: str) -> Event:
    """Carry out a run in a job; the file ``stop`` ends it after its current round."""
    try:
        worker = RemoteWorker(luggage)
    except HoldfastError as error:
        return RunFailed(error)
    return worker.carry_out(number, lambda record: None, Path(stop).exists)


class SlurmPool(WorkerPool):
    """Jobs of SLURM. They outlive a command that is killed: its successor waits for the runs that they are at.

    Attributes:
        jobs: The most jobs at a time.
        executor: What runs the tasks; every job has a copy.
        light: Whether to delete the checkpoints of finished runs.
        asked: What every job asks of the cluster.
        cluster: ``slurm``; or ``local`` for processes of this machine, which is for tests.
    """

    def __init__(self, jobs: int, executor: Executor, light: bool, asked: Slurm, cluster: str = "slurm") -> None:
        if find_spec("submitit") is None:
            raise HoldfastError("--executor slurm needs the package submitit: pip install 'holdfast[slurm]'")
        if cluster == "slurm" and shutil.which("sbatch") is None:
            raise HoldfastError(
                "--executor slurm needs sbatch, which is not here: start the command on a machine of the cluster"
            )
        self.jobs, self.executor, self.light, self.asked, self.cluster = jobs, executor, light, asked, cluster
        self.submitted: dict[int, Any] = {}  # the newest job of each run
        self.rounds: dict[int, int] = {}  # of each run, as far as reported

    def open(self, tasks: Sequence[PlannedRun]) -> None:
        self.tasks = tasks
        self.folder = tasks[0].folder.absolute().parents[1] / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / STOP).unlink(missing_ok=True)
        self.luggage = Luggage.pack(self.executor, tasks, self.light, self.asked.cpus)
        self.submitit = import_module("submitit")
        self.queue: Any = self.submitit.AutoExecutor(folder=self.folder, cluster=self.cluster)
        self.queue.update_parameters(**self.asked.parameters(self.jobs))

    def submit(self, numbers: Sequence[int]) -> None:
        try:
            with self.queue.batch():
                for number in numbers:
                    self.rounds[number] = len(self._history(number))
                    stop = str(self.folder / STOP)
                    self.submitted[number] = self.queue.submit(work, self.luggage, number, stop)
        except self.submitit.core.utils.FailedJobError as error:
            why = " ".join(str(error).split())[:200]
            raise HoldfastError(f"SLURM refuses the jobs: {why}; change what --executor slurm(...) asks for") from error

    def events(self) -> Iterable[tuple[int, Event]]:
        time.sleep(LOOKS)
        for number, job in list(self.submitted.items()):
            over = job.done()  # before the history is read: what is read then is all
            yield from ((number, event) for event in self._news(number))
            if over:
                del self.submitted[number]
                yield number, self._end(job)

    def ask_to_stop(self) -> set[int]:
        (self.folder / STOP).touch()
        dropped = {number for number, job in self.submitted.items() if job.state in WAITING}
        for number in dropped:
            self.submitted.pop(number).cancel()
        return dropped

    def close(self) -> None:
        for job in self.submitted.values():
            job.cancel()
        if not self.submitted:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, job: Any) -> Event:
        try:
            event: Event = job.result()
        except Exception as error:  # of submitit, whatever ended the job
            why = " ".join(str(error).split())[:160]
            remedy = f"see its logs in {self.folder}, then run the command again"
            return WorkerDied(f"SLURM job {job.job_id} ended in the state {job.state} ({why})", remedy)
        return event

    def _news(self, number: int) -> list[Event]:
        records = self._history(number)
        new = records[self.rounds[number] :]
        self.rounds[number] = len(records)  # a run that is resumed goes back to its checkpoint
        return [RoundDone(record) for record in new]

    def _history(self, number: int) -> list[Any]:
        """Return the rounds of a run that are on disk."""
        path = self.tasks[number].folder / HISTORY
        with suppress(OSError, HoldfastError):
            return read_history(path, path.read_bytes().count(b"\n"))
        return []
