"""Workers of a Ray cluster, or of a small one that Ray starts on this machine; GPUs are Ray's resources."""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from holdfast.comparison.executor import Executor
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.remote_worker import Luggage, RemoteWorker
from holdfast.comparison.worker_pool import Event, RoundDone, RunFailed, WorkerDied, WorkerPool
from holdfast.core.errors import HoldfastError

LOOPBACK = "127.0.0.1"
ANSWERS = 5.0  # seconds in which a cluster must answer
KEEPS_GPUS = "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"  # 0: as in later versions of Ray, without its warning
NEWS = 1.0  # seconds for which a worker waits for the next round before it says that there is none
REMEDY = "see Ray's log of that worker, then run the command again"


class RayWorker(RemoteWorker):
    """A worker in a process of Ray: it trains in one thread, and tells the rounds and is stopped in others."""

    def __init__(self, luggage: Luggage) -> None:
        self.rounds: queue.Queue[RoundDone] = queue.Queue()
        self.stopping = threading.Event()
        self.refused: RunFailed | None = None
        try:
            super().__init__(luggage)
        except HoldfastError as error:
            self.refused = RunFailed(error)

    def work(self, number: int) -> list[Event]:
        """Carry out a run; return the rounds that nobody has asked for yet, and how it ended."""
        if self.refused is not None:
            return [self.refused]
        end = self.carry_out(number, lambda record: self.rounds.put(RoundDone(record)), self.stopping.is_set)
        return [*self.news(0.0), end]

    def news(self, seconds: float = NEWS) -> list[Event]:
        """Return the rounds that are done since the last call; wait for the first of them."""
        found: list[Event] = []
        try:
            found.append(self.rounds.get(timeout=seconds) if seconds else self.rounds.get_nowait())
            while True:
                found.append(self.rounds.get_nowait())
        except queue.Empty:
            return found

    def stop(self) -> None:
        """Ask the run to stop after its current round."""
        self.stopping.set()


class Idle(NamedTuple):
    """A worker without a run, and its answer with the first rounds of the run that it gets next."""

    worker: Any
    news: Any


class Busy(NamedTuple):
    """A worker at a run, and the answers that it owes."""

    worker: Any
    number: int
    end: Any
    news: Any


class RayPool(WorkerPool):
    """Workers of Ray.

    Attributes:
        jobs: The number of workers.
        executor: What runs the tasks; every worker has a copy.
        light: Whether to delete the checkpoints of finished runs.
        address: The cluster, as ``ray://host:port``; None starts one on this machine, on the loopback alone.
    """

    def __init__(self, jobs: int, executor: Executor, light: bool, address: str | None) -> None:
        if find_spec("ray") is None:
            raise HoldfastError("--executor ray needs Ray, which is not installed: pip install 'holdfast[flower]'")
        self.jobs, self.executor, self.light, self.address = jobs, executor, light, address
        self.ray: Any = import_module("ray")
        self.ours = False  # whether this object has connected to Ray
        self.waiting: list[int] = []
        self.idle: list[Idle] = []
        self.busy: list[Busy] = []

    def open(self, tasks: Sequence[PlannedRun]) -> None:
        luggage = Luggage.pack(self.executor, tasks, self.light, None)
        if not self.ray.is_initialized():
            self._connect()
        self.luggage = self.ray.put(luggage)
        there = self.ray.cluster_resources()
        gpus = there.get("GPU", 0.0) if any(task.config.device != "cpu" for task in tasks) else 0.0
        share = {
            "num_cpus": min(1.0, there.get("CPU", 1.0) / self.jobs),
            "num_gpus": min(1.0, gpus / self.jobs),
        }
        self.make = self.ray.remote(max_concurrency=3, **share)(RayWorker)  # to work, to tell the rounds, to be stopped
        self.idle = [self._new_worker() for _ in range(self.jobs)]

    def submit(self, numbers: Sequence[int]) -> None:
        self.waiting += numbers

    def events(self) -> Iterable[tuple[int, Event]]:
        while self.waiting and self.idle:
            (worker, news), number = self.idle.pop(0), self.waiting.pop(0)
            self.busy.append(Busy(worker, number, worker.work.remote(number), news))
        owed = [answer for busy in self.busy for answer in (busy.end, busy.news)]
        ready, _ = self.ray.wait(owed, timeout=0.2) if owed else ([], [])
        for busy in list(self.busy):
            if busy.end not in ready and busy.news not in ready:
                continue
            self.busy.remove(busy)
            try:
                found: list[Event] = self.ray.get(busy.end if busy.end in ready else busy.news)
            except self.ray.exceptions.RayError as error:
                self.idle.append(self._new_worker())
                yield busy.number, WorkerDied(f"a worker of Ray died ({first_line(error)})", REMEDY)
                continue
            if busy.end in ready:
                self.idle.append(Idle(busy.worker, busy.news))
            else:
                self.busy.append(busy._replace(news=busy.worker.news.remote()))
            yield from ((busy.number, event) for event in found)

    def ask_to_stop(self) -> set[int]:
        dropped, self.waiting = {*self.waiting}, []
        for busy in self.busy:
            busy.worker.stop.remote()
        return dropped

    def close(self) -> None:
        for worker in [idle.worker for idle in self.idle] + [busy.worker for busy in self.busy]:
            self.ray.kill(worker)
        if self.ours:
            self.ray.shutdown()

    def _new_worker(self) -> Idle:
        worker = self.make.remote(self.luggage)
        return Idle(worker, worker.news.remote())

    def _connect(self) -> None:
        options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if self.address is None:
            options |= {"address": "local", "include_dashboard": False, "_node_ip_address": LOOPBACK}
        else:
            refuse_silent(self.address)
            options = {"address": self.address, "logging_level": logging.ERROR}
        os.environ.setdefault(KEEPS_GPUS, "0")
        try:
            self.ray.init(**options)
        except Exception as error:  # of many kinds: no answer, another version of Ray or Python, ...
            where = self.address or "this machine"
            raise HoldfastError(
                f"no connection to Ray at {where}: {first_line(error)}; check the address, and that the cluster has "
                "the same versions of Ray and Python"
            ) from error
        self.ours = True


def refuse_silent(address: str) -> None:
    """Raise an error if nothing answers at ``ray://host:port``: Ray itself would try for minutes."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
        if not host or not port:
            raise ValueError
    except ValueError:
        raise HoldfastError(f"--executor must be process, ray, ray://host:port or slurm, not {address}") from None
    try:
        socket.create_connection((host, port), timeout=ANSWERS).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise HoldfastError(
            f"no Ray cluster answers at {address} ({why}): check the address, and that it was started with "
            "ray start --head"
        ) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error, shortened."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
