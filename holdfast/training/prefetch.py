"""Prepare the next round's batches in a thread while a GPU is busy with this round's."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetcher(Generic[T]):
    """Calls ``make(t)`` ahead of round ``t``; ``make`` must depend on nothing that a round changes.

    >>> squares = Prefetcher(lambda t: t * t)
    >>> squares.start(3)
    >>> squares.take(3), squares.take(4)
    (9, 16)
    """

    def __init__(self, make: Callable[[int], T]) -> None:
        self.make, self.pool = make, ThreadPoolExecutor(1)
        self.started: dict[int, Future[T]] = {}

    def start(self, t: int) -> None:
        """Start on round ``t``; what was started for another round is dropped."""
        self.started = {t: self.pool.submit(self.make, t)}

    def take(self, t: int) -> T:
        """Return what round ``t`` needs, whether or not it was started."""
        future = self.started.pop(t, None)
        return self.make(t) if future is None else future.result()
