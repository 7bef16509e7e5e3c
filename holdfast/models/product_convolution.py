"""A convolution as matrix products, which stay batched products when every client has its own kernel.

Under ``vmap`` a convolution becomes a grouped one, which is slow on a GPU. Written as kernel [out, K] times windows
[K, positions], it becomes a batched matrix product over clients, forward and backward. A large kernel multiplies the
windows of the whole batch at once. A small one multiplies image by image: the gradient of a kernel is a sum over all
positions, and few results with long sums leave a GPU idle unless the images are summed in parallel.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.models.corner_pooling import CornerPool2d, is_corner_pool

Pair = tuple[int, int]
SMALL = 64 * 256  # numbers in a kernel


class Windows(torch.autograd.Function):
    """All windows of images [batch, in, height, width] as columns, of K = in * kh * kw numbers each.

    [K, batch * rows * columns] for the ``whole`` batch, or [batch, K, rows * columns] image by image. The backward pass
    adds the taps of the kernel one by one: shifted sums, which a compiler fuses into one.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, size: Pair, stride: Pair, whole: bool) -> Tensor:
        windows = x.unfold(2, size[0], stride[0]).unfold(3, size[1], stride[1])  # [batch, in, rows, columns, kh, kw]
        if whole:
            return windows.permute(1, 4, 5, 0, 2, 3).flatten(3).flatten(0, 2)
        return windows.permute(0, 1, 4, 5, 2, 3).flatten(4).flatten(1, 3)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Pair, Pair, bool], output: Tensor) -> None:
        x, ctx.size, ctx.stride, ctx.whole = inputs
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        (kh, kw), (sh, sw) = ctx.size, ctx.stride
        batch, channels, height, width = ctx.shape
        rows, columns = (height - kh) // sh + 1, (width - kw) // sw + 1
        if ctx.whole:
            taps = g.reshape(channels, kh, kw, batch, rows, columns).permute(1, 2, 3, 0, 4, 5)
        else:
            taps = g.reshape(batch, channels, kh, kw, rows, columns).permute(2, 3, 0, 1, 4, 5)
        total = g.new_zeros(())
        for i in range(kh):
            for j in range(kw):
                total = total + place(taps[i, j], (i, j), (sh, sw), (height, width))
        return total, None, None, None


def place(tap: Tensor, offset: Pair, stride: Pair, size: Pair) -> Tensor:
    """Spread values over a larger array of zeros.

    Args:
        tap: The values, [..., rows, columns].
        offset: Where the first value goes.
        stride: How far apart the values are.
        size: The height and width of the result.

    Returns:
        The array, [..., height, width].
    """
    (sh, sw), (rows, columns) = stride, tap.shape[-2:]
    if stride != (1, 1):
        spread = F.pad(tap[..., :, None, :, None], (0, sw - 1, 0, 0, 0, sh - 1))
        tap = spread.reshape(*tap.shape[:-2], rows * sh, columns * sw)
    right, below = size[1] - offset[1] - columns * sw, size[0] - offset[0] - rows * sh
    return F.pad(tap, (offset[1], right, offset[0], below))


class ProductConv2d(nn.Module):
    """Computes the same as the given ``nn.Conv2d``, with the same parameters."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = conv.weight, conv.bias
        assert not isinstance(conv.padding, str)
        self.size, self.stride, self.padding = pair(conv.kernel_size), pair(conv.stride), pair(conv.padding)

    def forward(self, x: Tensor) -> Tensor:
        (kh, kw), (sh, sw), (ph, pw) = self.size, self.stride, self.padding
        weight, bias = self.weight, self.bias
        if torch.is_autocast_enabled(x.device.type):
            low = torch.get_autocast_dtype(x.device.type)
            x, weight, bias = x.to(low), weight.to(low), None if bias is None else bias.to(low)
        x = F.pad(x, (pw, pw, ph, ph))
        batch, _, height, width = x.shape
        rows, columns = (height - kh) // sh + 1, (width - kw) // sw + 1
        kernel: Tensor = weight.flatten(1)
        whole = weight.numel() >= SMALL
        windows: Tensor = Windows.apply(x, self.size, self.stride, whole)  # type: ignore[no-untyped-call]
        odd = -kernel.shape[1] % 4  # rows of 16 bytes keep the matrix units busy
        if odd:
            kernel, windows, bias = pad_products(kernel, windows, bias, odd)
        if whole:
            out = (kernel @ windows).reshape(-1, batch, rows, columns).transpose(0, 1)
        else:
            out = torch.bmm(kernel.expand(batch, -1, -1), windows).reshape(batch, -1, rows, columns)
        return out if bias is None else out + bias[:, None, None]


def pad_products(
    kernel: Tensor, windows: Tensor, bias: Tensor | None, odd: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Add ``odd`` columns to the kernel and rows to the windows: first the bias times ones, then zeros.

    Args:
        kernel: [out, K].
        windows: [K, positions] or [batch, K, positions].
        bias: [out], if there is one.
        odd: How many columns and rows to add.

    Returns:
        The padded kernel and windows; the bias is None, since it is now part of the product.
    """
    if bias is None:
        return F.pad(kernel, (0, odd)), F.pad(windows, (0, 0, 0, odd)), None
    kernel = torch.cat([kernel, bias[:, None]], 1)
    windows = F.pad(windows, (0, 0, 0, 1), value=1.0)
    return F.pad(kernel, (0, odd - 1)), F.pad(windows, (0, 0, 0, odd - 1)), None


def pair(values: tuple[int, ...]) -> Pair:
    """Return the first two values."""
    return values[0], values[1]


def is_product_convolution(conv: nn.Module) -> bool:
    """Tell whether ``ProductConv2d`` can replace a module."""
    return (
        isinstance(conv, nn.Conv2d)
        and conv.groups == 1
        and conv.dilation == (1, 1)
        and not isinstance(conv.padding, str)
        and conv.padding_mode == "zeros"
    )


def with_products(module: nn.Module) -> nn.Module:
    """Replace the convolutions and pools of a module, in place, and return it."""
    for name, sub in list(module.named_modules()):
        parent, _, child = name.rpartition(".")
        if name and is_product_convolution(sub):
            assert isinstance(sub, nn.Conv2d)
            setattr(module.get_submodule(parent), child, ProductConv2d(sub))
        elif name and is_corner_pool(sub):
            setattr(module.get_submodule(parent), child, CornerPool2d())
    return module
