"""What the machine could do at best: a workload's operations and bytes over rates measured on the spot."""

from __future__ import annotations

import math
from functools import cache

import torch

from holdfast.bench.workload import fastest
from holdfast.models.cost import mflops
from holdfast.models.net import Net
from holdfast.models.zoo import make
from holdfast.runs.setup import arithmetic


def ceiling(
    model: str, shape: tuple[int, ...], cohort: int, batch: int, steps: int, device: str, precision: str
) -> str:
    """Operations and bytes of so many steps of a cohort, and the time that the larger of them needs, as a note.

    Operations: three passes of the network's multiplications (forward, and backward for inputs and for weights).
    Bytes: each activation written and read once forward and once backward; each weight read twice, its gradient
    written and read, the weight written.
    """
    module = make(model, shape, 10)
    net = Net(module, shape, 10)
    size = 2 if precision == "bf16" else 4
    work = 3e6 * mflops(module, shape) * batch * cohort * steps
    moved = (4 * size * (net.footprint + math.prod(shape)) * batch + 5 * 4 * net.layout.size) * cohort * steps
    rate, bandwidth = multiply_rate(device, precision), copy_rate(device)
    least = max(work / rate, moved / bandwidth)
    bound = "operations" if work / rate > moved / bandwidth else "bytes"
    return f"{work / 1e9:.3g} GFLOP, {moved / 1e9:.3g} GB; at best {least * 1e3:.3g} ms ({bound})"


@cache
def multiply_rate(device: str, precision: str) -> float:
    """Operations per second of a large matrix product."""
    n = 8192 if device == "cuda" else 1536
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
    with arithmetic(precision):
        return 2 * n**3 / fastest(lambda: a @ a, 8, device == "cuda")


@cache
def copy_rate(device: str) -> float:
    """Bytes per second, read and written, of a copy too large for any cache."""
    a = torch.zeros(2**28 if device == "cuda" else 2**26, device=device)
    b = torch.empty_like(a)
    return 2 * a.numel() * 4 / fastest(lambda: b.copy_(a), 8, device == "cuda")
