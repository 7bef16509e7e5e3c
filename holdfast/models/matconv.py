"""A convolution as one matrix product, which stays one batched product when every client has its own kernel.

Under ``vmap`` a convolution becomes a grouped one, far from what a GPU can do. Written as kernel [out, K] times windows
[K, batch * positions] it becomes a batched matrix product over clients, forward and backward.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Pair = tuple[int, int]
FEW = 64 * 256  # a kernel with fewer numbers gives a GPU too few sums to run side by side


class Windows(torch.autograd.Function):
    """All windows of images [in, batch, height, width] as columns: [in * kh * kw, batch * rows * columns].

    The backward pass adds the taps of the kernel one by one: plain shifted sums, which a compiler fuses into one.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, size: Pair, stride: Pair) -> Tensor:
        windows = x.unfold(2, size[0], stride[0]).unfold(3, size[1], stride[1])
        return windows.permute(0, 4, 5, 1, 2, 3).flatten(3).flatten(0, 2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Pair, Pair], output: Tensor) -> None:
        x, ctx.size, ctx.stride = inputs
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (kh, kw), (sh, sw) = ctx.size, ctx.stride
        channels, batch, height, width = ctx.shape
        rows, columns = (height - kh) // sh + 1, (width - kw) // sw + 1
        taps = g.reshape(channels, kh, kw, batch, rows, columns)
        total = g.new_zeros(())
        for i in range(kh):
            for j in range(kw):
                total = total + place(taps[:, i, j], (i, j), (sh, sw), (height, width))
        return total, None, None


class Product(torch.autograd.Function):
    """Kernel [out, K] times windows [K, n].

    A small kernel's gradient, few results with long sums, is cut into ``parts`` sums that run side by side.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(kernel: Tensor, windows: Tensor, parts: int) -> Tensor:
        return kernel @ windows

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
        kernel, windows, ctx.parts = inputs
        ctx.save_for_backward(kernel, windows)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        kernel, windows = ctx.saved_tensors
        if ctx.parts == 1:
            return g @ windows.T, kernel.T @ g, None
        pieces = (t.unflatten(1, (ctx.parts, -1)).transpose(0, 1) for t in (g, windows))
        left, right = pieces
        return (left @ right.transpose(1, 2)).sum(0), kernel.T @ g, None


def place(tap: Tensor, offset: Pair, stride: Pair, size: Pair) -> Tensor:
    """Lay [..., rows, columns] out on zeros of ``size``: from ``offset`` on, ``stride`` apart."""
    (sh, sw), (rows, columns) = stride, tap.shape[-2:]
    if stride != (1, 1):
        spread = F.pad(tap[..., :, None, :, None], (0, sw - 1, 0, 0, 0, sh - 1))
        tap = spread.reshape(*tap.shape[:-2], rows * sh, columns * sw)
    right, below = size[1] - offset[1] - columns * sw, size[0] - offset[0] - rows * sh
    return F.pad(tap, (offset[1], right, offset[0], below))


class MatConv2d(nn.Module):
    """Computes what the given ``nn.Conv2d`` computes, with the same parameters."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = conv.weight, conv.bias
        assert not isinstance(conv.padding, str)
        self.size, self.stride, self.padding = pair(conv.kernel_size), pair(conv.stride), pair(conv.padding)

    def forward(self, x: Tensor) -> Tensor:
        kernel: Tensor
        windows: Tensor
        out: Tensor
        (kh, kw), (sh, sw), (ph, pw) = self.size, self.stride, self.padding
        weight, bias = self.weight, self.bias
        if torch.is_autocast_enabled(x.device.type):
            low = torch.get_autocast_dtype(x.device.type)
            x, weight, bias = x.to(low), weight.to(low), None if bias is None else bias.to(low)
        x = F.pad(x.transpose(0, 1), (pw, pw, ph, ph))  # [in, batch, height, width]
        _, batch, height, width = x.shape
        rows, columns = (height - kh) // sh + 1, (width - kw) // sw + 1
        kernel, windows = weight.flatten(1), Windows.apply(x, self.size, self.stride)  # type: ignore[no-untyped-call]
        odd = -kernel.shape[1] % 4  # rows of 16 bytes keep the matrix units busy
        if odd:
            kernel, windows = F.pad(kernel, (0, odd)), F.pad(windows, (0, 0, 0, odd))
        out = Product.apply(kernel, windows, batch if kernel.numel() < FEW else 1)  # type: ignore[no-untyped-call]
        if bias is not None:
            out = out + bias[:, None]
        return out.reshape(-1, batch, rows, columns).transpose(0, 1)


def pair(values: tuple[int, ...]) -> Pair:
    return values[0], values[1]


def fits(conv: nn.Module) -> bool:
    """Whether a module is a convolution that this one can stand in for."""
    return (
        isinstance(conv, nn.Conv2d)
        and conv.groups == 1
        and conv.dilation == (1, 1)
        and not isinstance(conv.padding, str)
        and conv.padding_mode == "zeros"
    )


def with_products(module: nn.Module) -> nn.Module:
    """The module with its convolutions replaced, in place."""
    for name, sub in list(module.named_modules()):
        if name and fits(sub):
            parent, _, child = name.rpartition(".")
            assert isinstance(sub, nn.Conv2d)
            setattr(module.get_submodule(parent), child, MatConv2d(sub))
    return module
