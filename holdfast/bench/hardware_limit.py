"""What the machine could do at best: a workload's operations and bytes, divided by rates that are measured here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch

from holdfast.bench.workload import fastest
from holdfast.models.cost import mflops
from holdfast.models.net import Net
from holdfast.models.zoo import make
from holdfast.runs.setup import arithmetic


@dataclass(frozen=True)
class StepWork:
    """Some local steps of a cohort.

    Attributes:
        model: The network.
        shape: The shape of a sample.
        cohort: Clients.
        batch: Samples per step.
        steps: Steps per client.
    """

    model: str
    shape: tuple[int, ...]
    cohort: int
    batch: int
    steps: int


def least_time(work: StepWork, device: str, precision: str) -> str:
    """Return a note on how long some local steps take at least: by operations or by bytes, whichever takes longer.

    Operations: three passes of the network's multiplications (forward, and backward for inputs and for weights).
    Bytes: each activation is written and read once forward and once backward; each weight is read twice and written
    once, its gradient is written and read.

    Args:
        work: The steps.
        device: ``cpu`` or ``cuda``.
        precision: The arithmetic of the steps.

    Returns:
        Operations, bytes and the least time, as text.
    """
    module = make(work.model, work.shape, 10)
    net = Net(module, work.shape, 10)
    size = 2 if precision == "bf16" else 4
    clients = work.cohort * work.steps
    operations = 3e6 * mflops(module, work.shape) * work.batch * clients
    moved = (4 * size * (net.footprint + math.prod(work.shape)) * work.batch + 5 * 4 * net.layout.size) * clients
    rate, bandwidth = multiply_rate(device, precision), copy_rate(device)
    least = max(operations / rate, moved / bandwidth)
    bound = "operations" if operations / rate > moved / bandwidth else "bytes"
    return f"{operations / 1e9:.3g} GFLOP, {moved / 1e9:.3g} GB; at best {least * 1e3:.3g} ms ({bound})"


@cache
def multiply_rate(device: str, precision: str) -> float:
    """Return the operations per second of a large matrix product."""
    n = 8192 if device == "cuda" else 1536
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
    with arithmetic(precision):
        return 2 * n**3 / fastest(lambda: a @ a, 8, device == "cuda")


@cache
def copy_rate(device: str) -> float:
    """Return the bytes per second, read and written, of a copy that is too large for any cache."""
    a = torch.zeros(2**28 if device == "cuda" else 2**26, device=device)
    b = torch.empty_like(a)
    return 2 * a.numel() * 4 / fastest(lambda: b.copy_(a), 8, device == "cuda")
