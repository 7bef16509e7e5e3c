"""Fixed rules for convolutions that read their windows in place: where they are used, and how their work is divided.

The rules know shapes, precision and the generation of the GPU, and never look at a clock: the same run always takes the
same path. They hold what ``benchmarks/gpu_convolutions.py`` measured.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import torch

GENERATIONS = (9,)  # the compute capabilities, without minor number, on which the blocks were measured
PRECISIONS = ("tf32", "bf16")
PROGRAMS = 64  # per client, from which sums over positions are no longer divided


@dataclass(frozen=True)
class Blocks:
    """How a kernel divides its work.

    Attributes:
        rows: Positions per program, or outputs per program for sums over positions.
        columns: Outputs per program, or numbers of a kernel per program for sums over positions.
        depth: How many products are added at a time.
        warps: Groups of 32 threads per program.
        stages: How many loads are in flight.
        cached: Whether images are read through the first cache.
    """

    rows: int
    columns: int
    depth: int
    warps: int = 4
    stages: int = 3
    cached: bool = False


def windows(device: torch.device, precision: str) -> bool:
    """Tell whether runs on a device read windows in place if nothing else is asked for."""
    if device.type != "cuda" or precision not in PRECISIONS or not has_triton():
        return False
    return torch.cuda.get_device_capability(device)[0] in GENERATIONS


def has_triton() -> bool:
    """Tell whether the compiler of the kernels is installed."""
    return importlib.util.find_spec("triton") is not None


def is_thin(channels: int) -> bool:
    """Tell whether a tap has so few channels that several taps share a block.

    >>> is_thin(3), is_thin(64)
    (True, False)
    """
    return channels % 16 != 0


def product_blocks(channels: int, outputs: int, low: bool) -> Blocks:
    """Return how windows are multiplied by kernels.

    Args:
        channels: Channels of the images.
        outputs: Channels of the result.
        low: Whether numbers have 16 bits.

    Returns:
        The blocks.
    """
    columns = 128 if outputs % 128 == 0 else 64 if outputs > 32 else 32 if outputs > 16 else 16
    if is_thin(channels):
        return Blocks(128, columns, 32, warps=8 if columns == 128 else 4, stages=2)
    depth = next(d for d in ((64, 32, 16) if low else (32, 16)) if channels % d == 0)
    return Blocks(128, columns, depth, warps=8 if columns == 128 else 4, stages=3)


def sum_blocks(channels: int, outputs: int, length: int, low: bool) -> Blocks:
    """Return how outputs' gradients are multiplied by windows.

    Args:
        channels: Channels of the images.
        outputs: Channels of the result.
        length: Numbers in the kernel of one output.
        low: Whether numbers have 16 bits.

    Returns:
        The blocks.
    """
    rows = 64 if outputs > 32 else 32 if outputs > 16 else 16
    columns = 128 if length > 64 else 64
    return Blocks(rows, columns, 64 if low else 32, warps=4, stages=2 if is_thin(channels) else 3)


def sum_parts(outputs: int, length: int, positions: int, blocks: Blocks) -> int:
    """Return how many sums over positions are taken in parallel: by the shape of one client's layer alone.

    Args:
        outputs: Channels of the result.
        length: Numbers in the kernel of one output.
        positions: Positions of all windows of a batch.
        blocks: How the work is divided otherwise.

    Returns:
        The number of sums.

    >>> sum_parts(64, 1600, 5000, Blocks(64, 128, 32))
    4
    """
    tiles = -(-outputs // blocks.rows) * -(-length // blocks.columns)
    most = max(1, positions // (8 * blocks.depth))  # each adds at least eight times
    return min(most, max(1, PROGRAMS // tiles))
