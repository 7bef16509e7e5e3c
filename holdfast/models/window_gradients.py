"""Gradients of convolutions that read their windows in place, and what they do under ``vmap``.

Products of windows and kernels, spread products, and sums over positions are linear in each of two arguments, and the
gradients of each are the other two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from holdfast.models.window_operators import Windows2d, window_products, window_spread, window_sums
from holdfast.models.window_rules import is_thin


class WindowProducts(torch.autograd.Function):
    """Images [batch, height, width, channels] by a kernel [outputs, channels, kh, kw], plus a bias [outputs]."""

    @staticmethod
    def forward(x: Tensor, kernel: Tensor, bias: Tensor | None, w: Windows2d) -> Tensor:
        return products(x[None], kernel[None], None if bias is None else bias[None], w)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None, Windows2d], output: Tensor) -> None:
        x, kernel, bias, ctx.windows = inputs
        ctx.biased = bias is not None
        ctx.save_for_backward(x, kernel)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, kernel = ctx.saved_tensors
        g = g.contiguous()  # once for all that read it
        dx = WindowSpread.apply(g, kernel, ctx.windows) if ctx.needs_input_grad[0] else None  # type: ignore[no-untyped-call]
        if not any(ctx.needs_input_grad[1:3]):
            return dx, None, None, None
        ones = ctx.biased and is_thin(x.shape[-1])  # the sums have room for one more column
        sums = WindowSums.apply(x, g, ctx.windows, ones)  # type: ignore[no-untyped-call]
        if not ctx.biased:
            return dx, as_kernel(sums, ctx.windows), None, None
        if not ones:
            return dx, as_kernel(sums, ctx.windows), g.sum((0, 1, 2), dtype=kernel.dtype), None
        return dx, as_kernel(sums[:, :-1], ctx.windows), sums[:, -1], None

    @staticmethod
    def vmap(
        info: Any, dims: tuple[Any, ...], x: Tensor, kernel: Tensor, bias: Tensor | None, w: Windows2d
    ) -> tuple[Tensor, int]:
        if dims[1] is None and dims[2] is None:
            return of_one_kernel(lambda images: WindowProducts.forward(images, kernel, bias, w), x, dims[0]), 0
        x, kernel = lead(x, dims[0], info.batch_size), lead(kernel, dims[1], info.batch_size)
        return products(x, kernel, None if bias is None else lead(bias, dims[2], info.batch_size), w), 0


class WindowSpread(torch.autograd.Function):
    """The gradient of the images, from outputs' gradients [batch, rows, columns, outputs] and a kernel as above."""

    @staticmethod
    def forward(g: Tensor, kernel: Tensor, w: Windows2d) -> Tensor:
        return spread(g[None], kernel[None], w)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Windows2d], output: Tensor) -> None:
        g, kernel, ctx.windows = inputs
        ctx.save_for_backward(g, kernel)

    @staticmethod
    def backward(ctx: Any, dx: Tensor) -> tuple[Tensor, Tensor, None]:
        g, kernel = ctx.saved_tensors
        of_g = WindowProducts.apply(dx, kernel, None, ctx.windows)  # type: ignore[no-untyped-call]
        of_kernel = WindowSums.apply(dx, g, ctx.windows, False)  # type: ignore[no-untyped-call]
        return of_g, as_kernel(of_kernel, ctx.windows), None

    @staticmethod
    def vmap(info: Any, dims: tuple[Any, ...], g: Tensor, kernel: Tensor, w: Windows2d) -> tuple[Tensor, int]:
        if dims[1] is None:
            return of_one_kernel(lambda slopes: WindowSpread.forward(slopes, kernel, w), g, dims[0]), 0
        return spread(lead(g, dims[0], info.batch_size), lead(kernel, dims[1], info.batch_size), w), 0


class WindowSums(torch.autograd.Function):
    """The gradient of a kernel as a matrix [outputs, kh * kw * channels], with ``ones`` a column more: of the bias."""

    @staticmethod
    def forward(x: Tensor, g: Tensor, w: Windows2d, ones: bool) -> Tensor:
        return sums_of(x[None], g[None], w, ones)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Windows2d, bool], output: Tensor) -> None:
        x, g, ctx.windows, ctx.ones = inputs
        ctx.save_for_backward(x, g)

    @staticmethod
    def backward(ctx: Any, sums: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, g = ctx.saved_tensors
        kernel = as_kernel(sums[:, :-1] if ctx.ones else sums, ctx.windows)
        of_x = WindowSpread.apply(g, kernel, ctx.windows)  # type: ignore[no-untyped-call]
        of_g = WindowProducts.apply(x, kernel, sums[:, -1] if ctx.ones else None, ctx.windows)  # type: ignore[no-untyped-call]
        return of_x, of_g, None, None

    @staticmethod
    def vmap(info: Any, dims: tuple[Any, ...], x: Tensor, g: Tensor, w: Windows2d, ones: bool) -> tuple[Tensor, int]:
        return sums_of(lead(x, dims[0], info.batch_size), lead(g, dims[1], info.batch_size), w, ones), 0


def products(x: Tensor, kernel: Tensor, bias: Tensor | None, w: Windows2d) -> Tensor:
    """Multiply every client's windows by its kernel [clients, outputs, channels, kh, kw]."""
    arranged = kernel.permute(0, 1, 3, 4, 2).to(x.dtype).contiguous()
    out: Tensor = window_products(
        x.contiguous(), arranged, None if bias is None else bias.contiguous(), w.numbers(), w.tf32
    )
    return out


def spread(g: Tensor, kernel: Tensor, w: Windows2d) -> Tensor:
    """Multiply every client's outputs' gradients by its kernel [clients, outputs, channels, kh, kw]."""
    arranged = kernel.permute(0, 2, 3, 4, 1).to(g.dtype).contiguous()
    out: Tensor = window_spread(g.contiguous(), arranged, w.numbers(), w.tf32)
    return out


def sums_of(x: Tensor, g: Tensor, w: Windows2d, ones: bool) -> Tensor:
    """Multiply every client's outputs' gradients by its windows."""
    out: Tensor = window_sums(x.contiguous(), g.contiguous(), w.numbers(), ones, w.tf32)
    return out


def as_kernel(sums: Tensor, w: Windows2d) -> Tensor:
    """Return a matrix [outputs, kh * kw * channels] as a kernel [outputs, channels, kh, kw]."""
    return sums.reshape(len(sums), *w.taps, -1).permute(0, 3, 1, 2)


def lead(t: Tensor, dim: int | None, clients: int) -> Tensor:
    """Move the client axis to the front; what all clients share is repeated."""
    return t.expand(clients, *t.shape) if dim is None else t.movedim(dim, 0)


def of_one_kernel(compute: Callable[[Tensor], Tensor], images: Tensor, dim: int) -> Tensor:
    """Compute the images of all clients, which share a kernel, as one batch."""
    images = images.movedim(dim, 0)
    out = compute(images.flatten(0, 1))
    return out.reshape(*images.shape[:2], *out.shape[1:])
