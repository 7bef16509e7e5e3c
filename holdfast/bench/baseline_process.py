"""Work that is timed in a process of its own: what our engines tell the memory allocator must not reach a baseline."""

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

PAUSE = 0.02  # seconds until the threads of the process that worked last have gone to sleep


class BaselineProcess:
    """Another process with some work to do. A call has it done so many times and gives the seconds of the fastest."""

    def __init__(self, make: Callable[..., Callable[[], object]], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.there, other = context.Pipe()
        # A copy: tensors that are left to multiprocessing move to shared memory, on our side, too.
        copied = pickle.dumps((make, arguments))
        self.process = context.Process(target=serve, args=(other, copied), daemon=True)
        self.process.start()
        other.close()

    def __call__(self, times: int = 1) -> float:
        time.sleep(PAUSE)
        self.there.send(times)
        seconds: float = self.there.recv()
        time.sleep(PAUSE)
        return seconds

    def __enter__(self) -> BaselineProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.there.close()
        self.process.join()


def serve(orders: Connection, copied: bytes) -> None:
    """Make the work, and do it as often as each message says, until there is nobody to send any."""
    make, arguments = pickle.loads(copied)
    work = make(*arguments)
    with suppress(EOFError):
        while times := orders.recv():
            orders.send(fastest(work, times))
