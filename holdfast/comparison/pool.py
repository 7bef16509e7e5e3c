"""Several processes that take runs from one list. Each has its own pipe, so that one that dies harms no other."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import torch

from holdfast.comparison.executor import Executor
from holdfast.comparison.observers import Observer
from holdfast.comparison.planned_run import PlannedRun
from holdfast.core.devices import deal_gpus, starting_on
from holdfast.core.errors import HoldfastError
from holdfast.core.user_files import import_file
from holdfast.runs.code_files import listed, located

STOP = "stop"


class ProcessPool:
    """Processes that share the work and the cores.

    Attributes:
        jobs: The number of processes.
        executor: What runs the tasks; every process has a copy.
        light: Whether to delete the checkpoints of finished runs.
        threads: The number of torch threads of each process.
    """

    def __init__(self, jobs: int, executor: Executor, light: bool) -> None:
        self.jobs, self.executor, self.light = jobs, executor, light
        self.threads = min(torch.get_num_threads(), max(1, (os.cpu_count() or 1) // jobs))

    def run(self, tasks: Sequence[PlannedRun], watch: Observer, stop: Callable[[], bool]) -> bool:
        """Run the tasks. A run that fails, other than by diverging, ends them all with its error.

        Args:
            tasks: What to run.
            watch: Observes every round and run.
            stop: Asked again and again whether to stop.

        Returns:
            Whether every run is done.
        """
        waiting = list(tasks)
        busy: dict[Connection, PlannedRun] = {}
        pipes: dict[Connection, SpawnProcess] = {}
        stop_sent = stopped = False
        try:
            with ignoring_interrupts():
                gpus = deal_gpus(self.jobs, {task.config.device for task in tasks})
                pipes = dict(self._start(files_of(tasks), gpu) for gpu in gpus)
            for pipe in pipes:
                busy[pipe] = waiting.pop(0)
                pipe.send(busy[pipe])
            while busy:
                if stop() and not stop_sent:
                    stop_sent, waiting, stopped = True, [], bool(waiting)
                    for pipe in busy:
                        pipe.send(STOP)
                for pipe in ready(busy):
                    kind, *content = self._receive(pipe, pipes[pipe])
                    if kind == "round":
                        watch.round(busy[pipe], content[0])
                    elif kind == "end":
                        task = busy.pop(pipe)
                        watch.end(task, *content)
                        stopped = stopped or content[0] == "stopped"
                        if waiting:
                            busy[pipe] = waiting.pop(0)
                            pipe.send(busy[pipe])
                    elif kind == "expected":
                        raise content[0]
                    else:
                        raise RuntimeError(content[0])
        finally:
            for pipe, process in pipes.items():
                pipe.close()
                process.terminate()
                process.join()
        return not stopped

    def _start(self, files: list[str], gpu: str | None) -> tuple[Connection, SpawnProcess]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, files, self.threads, self.light))
        with starting_on(gpu):
            process.start()
        theirs.close()
        try:
            self._send_executor(ours)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            process.terminate()
            process.join()
            raise HoldfastError(
                f"the model or the data cannot be sent to the processes of --jobs ({error}): define them at the top "
                "level of a module, or use one job"
            ) from error
        return ours, process

    def _send_executor(self, pipe: Connection) -> None:
        """Send what a process works with. If its data cannot be in shared memory, which may be full, send a copy."""
        try:
            pipe.send(self.executor)
        except RuntimeError:  # what torch raises then
            pipe.send(pickle.dumps(self.executor))

    def _receive(self, pipe: Connection, process: SpawnProcess) -> tuple[Any, ...]:
        try:
            message: tuple[Any, ...] = pipe.recv()
        except EOFError as error:
            process.join()
            raise HoldfastError(
                f"a process of --jobs died with exit code {process.exitcode} (-9: out of memory?); its finished rounds "
                "are kept: run the command again with fewer --jobs"
            ) from error
        return message


def ready(pipes: Iterable[Connection]) -> list[Connection]:
    """Return the pipes that have a message, after a short wait."""
    return [pipe for pipe in wait(list(pipes), timeout=0.2) if isinstance(pipe, Connection)]


def files_of(tasks: Iterable[PlannedRun]) -> list[str]:
    """Return the user's files of code whose objects tasks may hold."""
    return list(dict.fromkeys(path for task in tasks for path in listed(located(task.config).imports)))


def serve(pipe: Connection, files: list[str], threads: int, light: bool) -> None:
    """Work as a process of the pool: take a task, report every round and the end, take the next.

    Args:
        pipe: Sends the executor first, then tasks.
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
            task = pipe.recv()
        except EOFError:
            return
        if task == STOP:  # it arrived just after the run had ended
            continue
        try:
            state, why = executor.run(task, lambda record: pipe.send(("round", record)), lambda: pipe.poll(), light)
            pipe.send(("end", state, why))
        except HoldfastError as error:
            pipe.send(("expected", HoldfastError(str(error))))
        except OSError as error:
            pipe.send(("expected", OSError(error.errno, error.strerror or str(error), error.filename)))
        except Exception:
            pipe.send(("failed", traceback.format_exc()))


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
