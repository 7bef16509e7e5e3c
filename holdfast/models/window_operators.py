"""The three passes of a client-batched convolution as operators: products, spread products, and sums over positions.

All tensors have a client axis first and the channels last. On a GPU they are Triton programs that read windows in
place; on a CPU they are PyTorch's own convolutions, client by client. Tracing sees an operator as one node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.library import custom_op
from torch.nn.grad import conv2d_input, conv2d_weight

from holdfast.models import window_launch as launch
from holdfast.models.window_rules import product_blocks, sum_blocks, sum_parts

Pair = tuple[int, int]


class Windows2d(NamedTuple):
    """Where the windows of a convolution are.

    Attributes:
        image: Height and width of an image.
        taps: Height and width of a kernel.
        grid: How many windows there are, vertically and horizontally.
        stride: How far apart they are.
        padding: How far the first is above and to the left of the image.
        tf32: Whether numbers of 32 bits may be rounded to TF32.
    """

    image: Pair
    taps: Pair
    grid: Pair
    stride: Pair
    padding: Pair
    tf32: bool = False

    def around(self) -> list[int]:
        """Return the zeros left of, right of, above and below an image that its windows cover; negative: left out."""
        pads = []
        for axis in (1, 0):
            reach = (self.grid[axis] - 1) * self.stride[axis] + self.taps[axis]
            pads += [self.padding[axis], reach - self.padding[axis] - self.image[axis]]
        return pads

    def numbers(self) -> list[int]:
        """Return everything but the precision as one list."""
        return [*self.image, *self.taps, *self.grid, *self.stride, *self.padding]


def placed(numbers: Sequence[int], tf32: bool) -> Windows2d:
    """Undo ``Windows2d.numbers``."""
    pairs = [(numbers[i], numbers[i + 1]) for i in range(0, len(numbers), 2)]
    return Windows2d(pairs[0], pairs[1], pairs[2], pairs[3], pairs[4], tf32)


@custom_op(
    "holdfast::window_products", mutates_args=(), device_types="cuda",
    schema="(Tensor x, Tensor kernel, Tensor? bias, int[] at, bool tf32) -> Tensor",
)  # fmt: skip
def window_products(x: Tensor, kernel: Tensor, bias: Tensor | None, at: Sequence[int], tf32: bool) -> Tensor:
    """Return [clients, batch, rows, columns, outputs] from images and kernels [clients, outputs, kh, kw, channels]."""
    w = placed(at, tf32)
    x, kernel = x.contiguous(), kernel.contiguous()
    out = x.new_empty(*x.shape[:2], *w.grid, kernel.shape[1])
    if out.numel() == 0:
        return out
    blocks = product_blocks(x.shape[-1], kernel.shape[1], x.element_size() == 2)
    vertical, horizontal = (launch.window_axis(w.grid[i], w.taps[i], w.stride[i], w.padding[i]) for i in (0, 1))
    launch.launch_products(x, kernel, bias, out, (vertical, horizontal), blocks, precision(tf32))
    return out


@custom_op(
    "holdfast::window_spread", mutates_args=(), device_types="cuda",
    schema="(Tensor g, Tensor kernel, int[] at, bool tf32) -> Tensor",
)  # fmt: skip
def window_spread(g: Tensor, kernel: Tensor, at: Sequence[int], tf32: bool) -> Tensor:
    """Return the images' gradient from the outputs' gradients and kernels [clients, channels, kh, kw, outputs]."""
    w = placed(at, tf32)
    g, kernel = g.contiguous(), kernel.contiguous()
    out = g.new_empty(*g.shape[:2], *w.image, kernel.shape[1])
    if out.numel() == 0:
        return out
    blocks = product_blocks(g.shape[-1], kernel.shape[1], g.element_size() == 2)
    vertical, horizontal = (launch.spread_axes(w.image[i], w.taps[i], w.stride[i], w.padding[i]) for i in (0, 1))
    for axes in ((v, h) for v in vertical for h in horizontal):
        launch.launch_products(g, kernel, None, out, axes, blocks, precision(tf32))
    return out


@custom_op(
    "holdfast::window_sums", mutates_args=(), device_types="cuda",
    schema="(Tensor x, Tensor g, int[] at, bool ones, bool tf32) -> Tensor",
)  # fmt: skip
def window_sums(x: Tensor, g: Tensor, at: Sequence[int], ones: bool, tf32: bool) -> Tensor:
    """Return the gradient of the kernels, [clients, outputs, kh * kw * channels]; with ``ones`` also of the bias."""
    w = placed(at, tf32)
    x, g = x.contiguous(), g.contiguous()
    outputs, length, positions = g.shape[-1], w.taps[0] * w.taps[1] * x.shape[-1] + ones, g[0, ..., 0].numel()
    blocks = sum_blocks(x.shape[-1], outputs, length, x.element_size() == 2)
    parts = sum_parts(x.shape[-1], outputs, length, positions, blocks)
    return launch.launch_sums(x, g, w.taps, w.stride, w.padding, ones, parts, blocks, precision(tf32))


def precision(tf32: bool) -> str:
    return "tf32" if tf32 else "ieee"


@window_products.register_kernel("cpu")
def _(x: Tensor, kernel: Tensor, bias: Tensor | None, at: Sequence[int], tf32: bool) -> Tensor:
    w = placed(at, tf32)
    out = []
    for i, (images, weight) in enumerate(zip(outside(x), outside(kernel), strict=True)):
        out.append(F.conv2d(F.pad(images, w.around()), weight, None if bias is None else bias[i].to(x.dtype), w.stride))
    return inside(out)


@window_spread.register_kernel("cpu")
def _(g: Tensor, kernel: Tensor, at: Sequence[int], tf32: bool) -> Tensor:
    w = placed(at, tf32)
    pads = w.around()
    out = []
    for slopes, transposed in zip(outside(g), outside(kernel), strict=True):
        size = (len(slopes), kernel.shape[1], w.image[0] + pads[2] + pads[3], w.image[1] + pads[0] + pads[1])
        wide = conv2d_input(size, transposed.transpose(0, 1), slopes, w.stride)  # type: ignore[no-untyped-call]
        out.append(F.pad(wide, [-p for p in pads]))
    return inside(out)


@window_sums.register_kernel("cpu")
def _(x: Tensor, g: Tensor, at: Sequence[int], ones: bool, tf32: bool) -> Tensor:
    w = placed(at, tf32)
    dtype = torch.promote_types(x.dtype, torch.float32)
    out = []
    for images, slopes in zip(outside(x.to(dtype)), outside(g.to(dtype)), strict=True):
        size = (slopes.shape[1], images.shape[1], *w.taps)
        slope: Tensor = conv2d_weight(F.pad(images, w.around()), size, slopes, w.stride)  # type: ignore[no-untyped-call]
        matrix = slope.permute(0, 2, 3, 1).flatten(1)
        out.append(torch.cat([matrix, slopes.sum((0, 2, 3))[:, None]], 1) if ones else matrix)
    return torch.stack(out).contiguous()


def outside(t: Tensor) -> Tensor:
    """Move the innermost axis before the two before it, as PyTorch has the channels of images."""
    return t.movedim(-1, -3)


def inside(clients: list[Tensor]) -> Tensor:
    """Undo ``outside`` for every client, and stack them."""
    return torch.stack(clients).movedim(-3, -1).contiguous()


@window_products.register_fake
def _(x: Tensor, kernel: Tensor, bias: Tensor | None, at: Sequence[int], tf32: bool) -> Tensor:
    return x.new_empty(*x.shape[:2], *placed(at, tf32).grid, kernel.shape[1])


@window_spread.register_fake
def _(g: Tensor, kernel: Tensor, at: Sequence[int], tf32: bool) -> Tensor:
    return g.new_empty(*g.shape[:2], *placed(at, tf32).image, kernel.shape[1])


@window_sums.register_fake
def _(x: Tensor, g: Tensor, at: Sequence[int], ones: bool, tf32: bool) -> Tensor:
    (kh, kw), dtype = placed(at, tf32).taps, torch.promote_types(x.dtype, torch.float32)
    return x.new_empty(len(x), g.shape[-1], kh * kw * x.shape[-1] + ones, dtype=dtype)
