"""Clients of a cohort in groups that train at the same time, each in a thread with a core."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch

ENOUGH = 2**20  # products of two numbers, in a step and direction, that are worth a thread


class ThreadGroups:
    """Does work group by group.

    Args:
        workers: The most groups.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.pool = ThreadPoolExecutor(workers, initializer=partial(torch.set_num_threads, 1)) if workers > 1 else None

    def each(self, work: Callable[[slice], object], clients: int, products: int) -> None:
        """Call ``work`` with the rows of every group; all groups have about the same work.

        Args:
            work: What to do.
            clients: The number of clients, whose work does not grow from row to row.
            products: The products of two numbers in a step of one of them: in small steps threads wait for Python.
        """
        groups = max(1, min(self.workers, clients, clients * products // ENOUGH))
        rows = [slice(i, None, groups) for i in range(groups)]
        list(map(work, rows) if self.pool is None or groups == 1 else self.pool.map(work, rows))
