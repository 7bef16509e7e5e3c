"""How many threads a run computes with on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from holdfast.models.net import Net

SMALL = 250_000  # trained parameters up to which a second thread costs a dense model more than it brings


@contextmanager
def suitable_threads(net: Net) -> Iterator[None]:
    """Compute with one thread within this block where the model is small.

    Threads of a small model mostly wait for each other. Several runs on one machine then get in each other's way, and
    take several times as long. Convolutions keep the threads: each works on a client of its own (``loop``).
    """
    threads = torch.get_num_threads()
    if net.device.type != "cpu" or net.convolutional or net.layout.size > SMALL or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
