"""Several processes that take runs from one list. Each has a pipe of its own, so that one that dies harms no other."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

from holdfast.comparison.observers import Observer
from holdfast.comparison.task import Executor, Task
from holdfast.core.errors import HoldfastError

STOP = "stop"


class ProcessPool:
    """``jobs`` processes, each with its share of the cores."""

    def __init__(self, jobs: int, bench: Executor, light: bool) -> None:
        self.jobs, self.bench, self.light = jobs, bench, light
        self.threads = min(torch.get_num_threads(), max(1, (os.cpu_count() or 1) // jobs))

    def run(self, tasks: Sequence[Task], watch: Observer, stop: Callable[[], bool]) -> bool:
        """Whether every run is done. A run that fails, other than by diverging, ends them all with its error."""
        waiting = list(tasks)
        busy: dict[Connection, Task] = {}
        pipes: dict[Connection, SpawnProcess] = {}
        asked = stopped = False
        try:
            with ignoring_interrupts():
                pipes = dict(self._start() for _ in range(self.jobs))
            for pipe in pipes:
                busy[pipe] = waiting.pop(0)
                pipe.send(busy[pipe])
            while busy:
                if stop() and not asked:
                    asked, waiting, stopped = True, [], bool(waiting)
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
                    else:
                        raise HoldfastError(content[0]) if kind == "mend" else RuntimeError(content[0])
        finally:
            for pipe, process in pipes.items():
                pipe.close()
                process.terminate()
                process.join()
        return not stopped

    def _start(self) -> tuple[Connection, SpawnProcess]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, self.bench, self.threads, self.light))
        process.start()
        theirs.close()
        return ours, process

    def _receive(self, pipe: Connection, process: SpawnProcess) -> tuple[Any, ...]:
        try:
            message: tuple[Any, ...] = pipe.recv()
        except EOFError as error:
            process.join()
            raise HoldfastError(
                f"a process of --jobs died with exit code {process.exitcode} (-9: out of memory?); what it had done is "
                "kept: run the command again, with fewer --jobs"
            ) from error
        return message


def ready(pipes: Iterable[Connection]) -> list[Connection]:
    """Those that have something to say, after a short wait."""
    return [pipe for pipe in wait(list(pipes), timeout=0.2) if isinstance(pipe, Connection)]


def serve(pipe: Connection, bench: Executor, threads: int, light: bool) -> None:
    """A process of the pool: take a task, tell every round and the end, take the next."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the first process decides
    threading.Thread(target=die_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        if task == STOP:  # came when its run had just ended
            continue
        try:
            state, why = bench.run(task, lambda record: pipe.send(("round", record)), lambda: pipe.poll(), light)
            pipe.send(("end", state, why))
        except HoldfastError as error:
            pipe.send(("mend", str(error)))
        except Exception:
            pipe.send(("fail", traceback.format_exc()))


def die_with_parent() -> None:
    """A killed comparison must not leave processes that write into its folders while it is resumed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Processes that are started within begin life deaf to Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
