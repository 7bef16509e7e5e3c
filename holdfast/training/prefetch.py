"""The next round's batches, drawn in a thread of their own while a GPU is busy with this round's."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetcher(Generic[T]):
    """``make(t)`` for the round that is told in advance; it must depend on nothing that a round changes.

    >>> ahead = Ahead(lambda t: t * t)
    >>> ahead.begin(3)
    >>> ahead.take(3), ahead.take(4)
    (9, 16)
    """

    def __init__(self, make: Callable[[int], T]) -> None:
        self.make, self.pool = make, ThreadPoolExecutor(1)
        self.begun: dict[int, Future[T]] = {}

    def begin(self, t: int) -> None:
        """Start on round ``t``; what was begun for another round is dropped."""
        self.begun = {t: self.pool.submit(self.make, t)}

    def take(self, t: int) -> T:
        """What round ``t`` needs, begun or not."""
        future = self.begun.pop(t, None)
        return self.make(t) if future is None else future.result()
