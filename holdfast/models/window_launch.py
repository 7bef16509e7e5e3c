"""How the Triton programs for convolutions are launched."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.models.window_kernels import add_parts_kernel, products_kernel, sums_kernel
from holdfast.models.window_rules import Blocks

Pair = tuple[int, int]


@dataclass(frozen=True)
class Axis:
    """How the places of an output along one axis find what they are made of.

    Output ``i`` reads the places ``i * step + start + t * move`` for the taps ``t`` in ``range(taps)``; tap ``t`` has
    the place ``first + t * skip`` in the kernel. The result goes to place ``i * spread + offset``.
    """

    count: int  # outputs
    step: int
    start: int
    move: int
    taps: int
    first: int = 0
    skip: int = 1
    spread: int = 1
    offset: int = 0

    def leaves(self, size: int) -> bool:
        """Tell whether any window reaches beyond the image."""
        lowest, highest = self.start, (self.count - 1) * self.step + self.start
        reach = (self.taps - 1) * self.move
        return self.count > 0 and (min(lowest, lowest + reach) < 0 or max(highest, highest + reach) >= size)


def window_axis(count: int, taps: int, stride: int, padding: int) -> Axis:
    """Return an axis of a convolution."""
    return Axis(count, stride, -padding, 1, taps)


def spread_axes(size: int, taps: int, stride: int, padding: int) -> list[Axis]:
    """Return the axes of a gradient of the input: one for each place modulo the stride, since they use other taps."""
    return [
        Axis(
            count=-(-(size - place) // stride), step=1, start=(place + padding) // stride, move=-1,
            taps=max(0, -(-(taps - (place + padding) % stride) // stride)), first=(place + padding) % stride,
            skip=stride, spread=stride, offset=place,
        )
        for place in range(min(stride, size))
    ]  # fmt: skip


def launch_products(
    x: Tensor, kernel: Tensor, bias: Tensor | None, out: Tensor, axes: tuple[Axis, Axis], blocks: Blocks, precision: str
) -> None:
    """Fill the places of ``out`` that two axes name with the products of windows and kernels.

    Args:
        x: Images, [clients, batch, height, width, channels].
        kernel: [clients, outputs, kh, kw, channels].
        bias: [clients, outputs].
        out: [clients, batch, height, width, outputs].
        axes: The vertical and the horizontal axis.
        blocks: How the work is divided.
        precision: ``tf32`` or ``ieee``, for numbers of 32 bits.
    """
    clients, batch, height, width, channels = x.shape
    outputs, kh, kw = kernel.shape[1:4]
    v, h = axes
    tiles = -(-batch * v.count * h.count // blocks.rows) * -(-outputs // blocks.columns)
    products_kernel[(tiles, clients)](
        x, kernel, x if bias is None else bias, out, batch,
        HEIGHT=height, WIDTH=width, CHANNELS=channels, OUTPUTS=outputs, KH=kh, KW=kw,
        OUT_HEIGHT=out.shape[2], OUT_WIDTH=out.shape[3],
        ROWS=v.count, STEP_H=v.step, START_H=v.start, MOVE=v.move, TAPS_H=v.taps,
        FIRST_H=v.first, SKIP_H=v.skip, SPREAD_H=v.spread, OFFSET_H=v.offset,
        COLUMNS=h.count, STEP_W=h.step, START_W=h.start, TAPS_W=h.taps,
        FIRST_W=h.first, SKIP_W=h.skip, SPREAD_W=h.spread, OFFSET_W=h.offset,
        PADDED=v.leaves(height) or h.leaves(width), BIAS=bias is not None, PRECISION=precision,
        CACHE=".ca" if blocks.cached else "", BM=blocks.rows, BN=blocks.columns, BK=blocks.depth,
        num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip


def launch_sums(
    x: Tensor, g: Tensor, size: Pair, stride: Pair, padding: Pair, ones: bool, parts: int, blocks: Blocks,
    precision: str,
) -> Tensor:  # fmt: skip
    """Return the gradient of kernels.

    Args:
        x: Images, [clients, batch, height, width, channels].
        g: The outputs' gradients, [clients, batch, rows, columns, outputs].
        size: The height and width of a kernel.
        stride: How far apart the windows are.
        padding: The zeros above and to the left of an image.
        ones: Whether to append the sum of each output's gradient, which is the gradient of a bias.
        parts: How many sums over positions are taken in parallel and then added.
        blocks: How the work is divided.
        precision: ``tf32`` or ``ieee``, for numbers of 32 bits.

    Returns:
        [clients, outputs, kh * kw * channels], or one more with ``ones``, in 32 bits.
    """
    clients, batch, height, width, channels = x.shape
    rows, columns, outputs = g.shape[2:]
    length = size[0] * size[1] * channels + ones
    steps = -(-batch * rows * columns // (parts * blocks.depth))
    axes = [window_axis(rows, size[0], stride[0], padding[0]), window_axis(columns, size[1], stride[1], padding[1])]
    out = torch.empty((parts, clients, outputs, length), dtype=torch.float32, device=x.device)
    tiles = -(-outputs // blocks.rows) * -(-length // blocks.columns)
    sums_kernel[(tiles, parts, clients)](
        x, g, out, batch,
        HEIGHT=height, WIDTH=width, CHANNELS=channels, OUTPUTS=outputs, KH=size[0], KW=size[1],
        ROWS=rows, COLUMNS=columns, STRIDE_H=stride[0], STRIDE_W=stride[1], PAD_H=padding[0], PAD_W=padding[1],
        SPAN=steps * blocks.depth, PADDED=axes[0].leaves(height) or axes[1].leaves(width), ONES=int(ones),
        PRECISION=precision, CACHE=".ca" if blocks.cached else "", BM=blocks.depth, BN=blocks.rows, BK=blocks.columns,
        num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip
    return out[0] if parts == 1 else add_parts(out)


def add_parts(parts: Tensor) -> Tensor:
    """Add tensors along the first axis, in order."""
    out = torch.empty_like(parts[0])
    block = 1024
    add_parts_kernel[(-(-out.numel() // block),)](parts, out, out.numel(), PARTS=len(parts), BLOCK=block)
    return out
