"""Several processes that take runs from one list. Each has its own pipe, so that one that dies harms no other."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import NamedTuple, cast

import torch

from holdfast.comparison.executor import Executor
from holdfast.comparison.observers import Observer
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.run_batch import run_groups
from holdfast.comparison.together import batches
from holdfast.comparison.worker_pool import Event, Remark, RoundDone, RunEnded, RunFailed, WorkerDied, WorkerPool
from holdfast.core.devices import deal_gpus, starting_on
from holdfast.core.errors import HoldfastError
from holdfast.core.user_files import import_file
from holdfast.runs.code_files import listed, located
from holdfast.training.round_record import RoundRecord

STOP = "stop"
REMEDY = "run the command again with fewer --jobs"


class Worker(NamedTuple):
    """A process of the pool, the pipe to it, and its place: a process that replaces another takes its place and GPU."""

    pipe: Connection
    process: SpawnProcess
    place: int


class ProcessPool(WorkerPool):
    """Processes that share the work, the cores and the GPUs.

    Attributes:
        jobs: The number of processes.
        executor: What runs the tasks; every process has a copy.
        light: Whether to delete the checkpoints of finished runs.
        together: Whether runs that are alike share steps; None: on a GPU.
        threads: The number of torch threads of each process.
        waiting: The numbers of the runs that no process has; those of a group may share steps.
        idle: The processes that have no run.
        busy: The others, by their pipes, with the numbers of their runs that have not ended.
    """

    def __init__(self, jobs: int, executor: Executor, light: bool, together: bool | None = False) -> None:
        self.jobs, self.executor, self.light, self.together = jobs, executor, light, together
        self.threads = min(torch.get_num_threads(), max(1, (os.cpu_count() or 1) // jobs))
        self.waiting: list[list[int]] = []
        self.idle: list[Worker] = []
        self.busy: dict[Connection, tuple[Worker, list[int]]] = {}

    def open(self, tasks: Sequence[PlannedRun]) -> None:
        self.tasks, self.files = tasks, files_of(tasks)
        self.gpus = deal_gpus(self.jobs, {task.config.device for task in tasks})
        with ignoring_interrupts():
            for place in range(self.jobs):
                self.idle.append(self._start(place))

    def submit(self, numbers: Sequence[int]) -> None:
        known = {id(self.tasks[number]): number for number in numbers}
        groups = batches([self.tasks[number] for number in numbers], self.together, self.jobs)
        self.waiting += [[known[id(task)] for task in group] for group in groups]

    def events(self) -> Iterable[tuple[int, Event]]:
        self._hand_out()
        for pipe in ready(self.busy):
            worker, numbers = self.busy[pipe]
            number, event = self._receive(worker, numbers)
            if isinstance(event, WorkerDied):
                del self.busy[pipe]
                pipe.close()
                with ignoring_interrupts():
                    self.idle.append(self._start(worker.place))
                yield from ((each, event) for each in numbers)
                continue
            if isinstance(event, RunEnded):
                numbers.remove(number)
            if not numbers:
                del self.busy[pipe]
                self.idle.append(worker)
            yield number, event

    def ask_to_stop(self) -> set[int]:
        dropped, self.waiting = {number for group in self.waiting for number in group}, []
        for pipe in self.busy:
            with suppress(OSError):  # it has died, which is noticed when it is read
                pipe.send(STOP)
        return dropped

    def close(self) -> None:
        for worker in [*self.idle, *(worker for worker, _ in self.busy.values())]:
            worker.pipe.close()
            worker.process.terminate()
            worker.process.join()

    def _hand_out(self) -> None:
        while self.waiting and self.idle:
            worker, numbers = self.idle.pop(0), self.waiting.pop(0)
            self.busy[worker.pipe] = worker, numbers
            with suppress(OSError):  # likewise
                worker.pipe.send([(number, self.tasks[number]) for number in numbers])

    def _start(self, place: int) -> Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, self.files, self.threads, self.light))
        with starting_on(self.gpus[place]):
            process.start()
        theirs.close()
        try:
            with suppress(BrokenPipeError):  # likewise
                self._send_executor(ours)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            process.terminate()
            process.join()
            raise HoldfastError(
                f"the model or the data cannot be sent to the processes of --jobs ({error}): define them at the top "
                "level of a module, or use one job"
            ) from error
        return Worker(ours, process, place)

    def _send_executor(self, pipe: Connection) -> None:
        """Send what a process works with. If its data cannot be in shared memory, which may be full, send a copy."""
        try:
            pipe.send(self.executor)
        except RuntimeError:  # what torch raises then
            pipe.send(pickle.dumps(self.executor))

    def _receive(self, worker: Worker, numbers: Sequence[int]) -> tuple[int, Event]:
        try:
            event: tuple[int, Event] = worker.pipe.recv()
        except (EOFError, ConnectionError):
            worker.process.join()
            how = f"a process of --jobs died with exit code {worker.process.exitcode} (-9: out of memory?)"
            return numbers[0], WorkerDied(how, REMEDY)
        return event


class PipeReporter(Observer):
    """Reports what becomes of a group of runs."""

    def __init__(self, pipe: Connection, group: Sequence[tuple[int, PlannedRun]]) -> None:
        self.pipe = pipe
        self.numbers = {id(task): number for number, task in group}
        self.left = [number for number, _ in group]

    def round(self, task: PlannedRun, record: RoundRecord) -> None:
        self.pipe.send((self.numbers[id(task)], RoundDone(record)))

    def end(self, task: PlannedRun, state: str, why: str) -> None:
        self.left.remove(self.numbers[id(task)])
        self.pipe.send((self.numbers[id(task)], RunEnded(state, why)))

    def say(self, text: str) -> None:
        self.send(Remark(text))

    def leave(self) -> None:
        """Report the runs that were not begun since all were to stop."""
        for number in self.left:
            self.pipe.send((number, RunEnded("stopped", "")))

    def send(self, event: Event) -> None:
        """Report something about the whole group."""
        self.pipe.send((next(iter(self.left), -1), event))


def ready(pipes: Iterable[Connection]) -> list[Connection]:
    """Return the pipes that have a message, after a short wait."""
    return cast(list[Connection], wait(list(pipes), timeout=0.2))  # on Windows they are of another class


def files_of(tasks: Iterable[PlannedRun]) -> list[str]:
    """Return the user's files of code whose objects tasks may hold."""
    return list(dict.fromkeys(path for task in tasks for path in listed(located(task.config).imports)))


def serve(pipe: Connection, files: list[str], threads: int, light: bool) -> None:
    """Work as a process of the pool: take runs, report every round and the end of each, take the next.

    Args:
        pipe: Sends the executor first, then groups of runs with their numbers.
        files: The user's files of code to import before anything is received.
        threads: The number of torch threads.
        light: Whether to delete the checkpoints of finished runs.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group, but the first process decides
    threading.Thread(target=die_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    for file in files:
        import_file(Path(file))
    given = pipe.recv()
    executor: Executor = pickle.loads(given) if isinstance(given, bytes) else given
    while True:
        try:
            group = pipe.recv()
        except EOFError:
            return
        if group == STOP:  # it arrived just after the runs had ended
            continue
        watch = PipeReporter(pipe, group)
        try:
            run_groups([[task for _, task in group]], executor, watch, pipe.poll, light)
            watch.leave()
        except Exception as error:
            watch.send(failure(error))


def failure(error: Exception) -> RunFailed:
    """Return what a worker reports of an error; only errors that users can fix keep their kind."""
    if isinstance(error, HoldfastError):
        return RunFailed(HoldfastError(str(error)))
    if isinstance(error, OSError):
        return RunFailed(OSError(error.errno, error.strerror or str(error), error.filename))
    return RunFailed(RuntimeError("".join(traceback.format_exception(error))))


def die_with_parent() -> None:
    """End this process with its parent: a killed comparison must not leave writers behind when it is resumed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Make processes that are started within this block ignore Ctrl-C from the start."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
