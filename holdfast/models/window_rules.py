"""Fixed rules for convolutions that read their windows in place: where they are used, and how their work is divided.

The rules know shapes, precision and the generation of the GPU, and never look at a clock: the same run always takes the
same path. They hold what ``benchmarks/gpu_convolutions.py`` measured.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import torch

GENERATIONS = (9,)  # the compute capabilities, without minor number, on which the blocks were measured
PRECISIONS = ("bf16",)  # TF32 waits until whole steps with its present blocks have been checked and are faster
SMALL = 64  # windows per image, from which layers in 16 bits were faster than as products
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


def reads_in_place(channels: int, outputs: int, positions: int, low: bool) -> bool:
    """Tell whether a layer reads its windows in place; otherwise it is computed as products.

    In 16 bits, thin layers gave wrong products on an H200; what is thought to be the cause is gone, but no GPU has
    confirmed it. Others were faster in place, but for 512 channels at 4 x 4 positions: 296 us for their three passes,
    against some 265 as products with writing windows and adding up their gradients, as taken from a whole step.

    Args:
        channels: Channels of the images.
        outputs: Channels of the result, which are read in the same way for the gradient of the images.
        positions: Windows per image.
        low: Whether numbers have 16 bits.

    Returns:
        Whether it does.

    >>> reads_in_place(64, 64, 1024, low=True), reads_in_place(3, 64, 1024, low=True)
    (True, False)
    """
    return not low or (positions >= SMALL and not is_thin(channels) and not is_thin(outputs))


def product_blocks(channels: int, outputs: int, low: bool) -> Blocks:
    """Return how windows are multiplied by kernels.

    Measured on an H200 with Triton 3.6, for ten clients with 50 images each. TF32, in microseconds: thin layers at 16
    products without overlap 46 (3 to 64 channels, 7 x 7) and 78 (5 x 5), at 32 with it 82 and 130; 128 outputs at 64
    positions 8 to 38, at 128 positions 11 to 55. In bf16 these blocks are those that passed the check of every layer.

    Args:
        channels: Channels of the images.
        outputs: Channels of the result.
        low: Whether numbers have 16 bits.

    Returns:
        The blocks.
    """
    columns = 128 if outputs % 128 == 0 else 64 if outputs > 32 else 32 if outputs > 16 else 16
    if is_thin(channels):
        warps = 8 if columns == 128 else 4
        return Blocks(128, columns, 32, warps, stages=2) if low else Blocks(128, columns, 16, warps, stages=1)
    depth = next(d for d in ((64, 32, 16) if low else (32, 16)) if channels % d == 0)
    if columns < 128:
        return Blocks(128, columns, depth)
    return Blocks(128, columns, depth, warps=8) if low else Blocks(64, columns, depth, stages=4)


def sum_blocks(channels: int, outputs: int, length: int, low: bool) -> Blocks:
    """Return how outputs' gradients are multiplied by windows.

    Measured as above. TF32, in microseconds: thin layers without overlap 124, 93 and 49, with it 643, 105 and 296;
    others with two warps 9 to 136, with four 17 to 384.

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
    if low:
        return Blocks(rows, columns, 64, stages=2 if is_thin(channels) else 3)
    if is_thin(channels):
        return Blocks(rows, columns, 32, stages=1)
    return Blocks(64, 64, 32, warps=2) if rows == 64 else Blocks(rows, columns, 32)


def sum_parts(channels: int, outputs: int, length: int, positions: int, blocks: Blocks) -> int:
    """Return how many sums over positions are taken in parallel: by the shape of one client's layer alone.

    Args:
        channels: Channels of the images.
        outputs: Channels of the result.
        length: Numbers in the kernel of one output.
        positions: Positions of all windows of a batch.
        blocks: How the work is divided otherwise.

    Returns:
        The number of sums.

    >>> sum_parts(64, 64, 1600, 5000, Blocks(64, 64, 32))
    2
    """
    tiles = -(-outputs // blocks.rows) * -(-length // blocks.columns)
    most = max(1, positions // (8 * blocks.depth))  # each adds at least eight times
    programs = PROGRAMS // 2 if is_thin(channels) and blocks.rows == 64 else PROGRAMS  # 95 us rather than 124
    return min(most, max(1, programs // tiles))
