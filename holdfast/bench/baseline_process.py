"""A baseline that is timed in its own process, out of reach of our engines' settings of the memory allocator."""

from __future__ import annotations

import multiprocessing
import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from holdfast.bench.workload import fastest

PAUSE = 0.02  # seconds until the threads of the other process have gone to sleep


class BaselineProcess:
    """Another process with some work to do; a call repeats the work and returns the seconds of the fastest time."""

    def __init__(self, make: Callable[..., Callable[[], object]], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        # A copy, since multiprocessing would move our tensors to shared memory.
        payload = pickle.dumps((make, arguments))
        self.process = context.Process(target=serve, args=(other, payload), daemon=True)
        self.process.start()
        other.close()

    def __call__(self, times: int = 1) -> float:
        time.sleep(PAUSE)
        self.connection.send(times)
        seconds: float = self.connection.recv()
        time.sleep(PAUSE)
        return seconds

    def __enter__(self) -> BaselineProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.connection.close()
        self.process.join()


def serve(connection: Connection, payload: bytes) -> None:
    """Prepare the work, and do it as often as each message says, until the connection is closed."""
    make, arguments = pickle.loads(payload)
    work = make(*arguments)
    with suppress(EOFError):
        while times := connection.recv():
            connection.send(fastest(work, times))
