"""The three passes of a client-batched convolution as operators: products, spread products, and sums over positions.

All tensors have a client axis first and the channels last. Each operator is linear in each of its two arguments, and
the gradients of each are the other two. On a GPU they are Triton kernels that read windows in place; on a CPU they are
PyTorch's own convolutions, client by client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import grad

from holdfast.models import window_kernels as kernels
from holdfast.models.window_rules import is_thin, product_blocks, sum_blocks, sum_parts

Pair = tuple[int, int]


class Windows2d(NamedTuple):
    """Where the windows of a convolution are.

    Attributes:
        image: Height and width of an image.
        taps: Height and width of a kernel.
        count: How many windows there are, vertically and horizontally.
        stride: How far apart they are.
        padding: How far the first is above and to the left of the image.
        tf32: Whether numbers of 32 bits may be rounded to TF32.
    """

    image: Pair
    taps: Pair
    count: Pair
    stride: Pair
    padding: Pair
    tf32: bool = False

    def around(self) -> list[int]:
        """Return the zeros left of, right of, above and below an image that its windows cover; negative: left out."""
        pads = []
        for axis in (1, 0):
            reach = (self.count[axis] - 1) * self.stride[axis] + self.taps[axis]
            pads += [self.padding[axis], reach - self.padding[axis] - self.image[axis]]
        return pads

    def numbers(self) -> list[int]:
        """Return everything but the precision as one list."""
        return [*self.image, *self.taps, *self.count, *self.stride, *self.padding]


def placed(numbers: Sequence[int], tf32: bool) -> Windows2d:
    """Undo ``Windows2d.numbers``."""
    pairs = [(numbers[i], numbers[i + 1]) for i in range(0, len(numbers), 2)]
    return Windows2d(pairs[0], pairs[1], pairs[2], pairs[3], pairs[4], tf32)


@torch.library.custom_op(
    "holdfast::window_products", mutates_args=(), device_types="cuda",
    schema="(Tensor x, Tensor kernel, Tensor? bias, int[] at, bool tf32) -> Tensor",
)  # fmt: skip
def window_products(x: Tensor, kernel: Tensor, bias: Tensor | None, at: Sequence[int], tf32: bool) -> Tensor:
    """Return [clients, batch, rows, columns, outputs] from images and kernels [clients, outputs, kh, kw, channels]."""
    w = placed(at, tf32)
    x, kernel = x.contiguous(), kernel.contiguous()
    out = x.new_empty(*x.shape[:2], *w.count, kernel.shape[1])
    if out.numel() == 0:
        return out
    blocks = product_blocks(x.shape[-1], kernel.shape[1], x.element_size() == 2)
    vertical, horizontal = (kernels.window_axis(w.count[i], w.taps[i], w.stride[i], w.padding[i]) for i in (0, 1))
    kernels.launch_products(x, kernel, bias, out, (vertical, horizontal), blocks, precision(tf32))
    return out


@torch.library.custom_op(
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
    vertical, horizontal = (kernels.spread_axes(w.image[i], w.taps[i], w.stride[i], w.padding[i]) for i in (0, 1))
    for axes in ((v, h) for v in vertical for h in horizontal):
        kernels.launch_products(g, kernel, None, out, axes, blocks, precision(tf32))
    return out


@torch.library.custom_op(
    "holdfast::window_sums", mutates_args=(), device_types="cuda",
    schema="(Tensor x, Tensor g, int[] at, bool ones, bool tf32) -> Tensor",
)  # fmt: skip
def window_sums(x: Tensor, g: Tensor, at: Sequence[int], ones: bool, tf32: bool) -> Tensor:
    """Return the gradient of the kernels, [clients, outputs, kh * kw * channels]; with ``ones`` also of the bias."""
    w = placed(at, tf32)
    x, g = x.contiguous(), g.contiguous()
    outputs, length, positions = g.shape[-1], w.taps[0] * w.taps[1] * x.shape[-1] + ones, g[0, ..., 0].numel()
    blocks = sum_blocks(x.shape[-1], outputs, length, x.element_size() == 2)
    parts = sum_parts(outputs, length, positions, blocks)
    return kernels.launch_sums(x, g, w.taps, w.stride, w.padding, ones, parts, blocks, precision(tf32))


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
        wide = grad.conv2d_input(size, transposed.transpose(0, 1), slopes, w.stride)
        out.append(F.pad(wide, [-p for p in pads]))
    return inside(out)


@window_sums.register_kernel("cpu")
def _(x: Tensor, g: Tensor, at: Sequence[int], ones: bool, tf32: bool) -> Tensor:
    w = placed(at, tf32)
    dtype = torch.promote_types(x.dtype, torch.float32)
    out = []
    for images, slopes in zip(outside(x.to(dtype)), outside(g.to(dtype)), strict=True):
        size = (slopes.shape[1], images.shape[1], *w.taps)
        of_kernel = grad.conv2d_weight(F.pad(images, w.around()), size, slopes, w.stride).permute(0, 2, 3, 1).flatten(1)
        out.append(torch.cat([of_kernel, slopes.sum((0, 2, 3))[:, None]], 1) if ones else of_kernel)
    return torch.stack(out).contiguous()


def outside(t: Tensor) -> Tensor:
    """Move the innermost axis before the two before it, as PyTorch has the channels of images."""
    return t.movedim(-1, -3)


def inside(clients: list[Tensor]) -> Tensor:
    """Undo ``outside`` for every client, and stack them."""
    return torch.stack(clients).movedim(-3, -1).contiguous()


@window_products.register_fake
def _(x: Tensor, kernel: Tensor, bias: Tensor | None, at: Sequence[int], tf32: bool) -> Tensor:
    return x.new_empty(*x.shape[:2], *placed(at, tf32).count, kernel.shape[1])


@window_spread.register_fake
def _(g: Tensor, kernel: Tensor, at: Sequence[int], tf32: bool) -> Tensor:
    return g.new_empty(*g.shape[:2], *placed(at, tf32).image, kernel.shape[1])


@window_sums.register_fake
def _(x: Tensor, g: Tensor, at: Sequence[int], ones: bool, tf32: bool) -> Tensor:
    (kh, kw), dtype = placed(at, tf32).taps, torch.promote_types(x.dtype, torch.float32)
    return x.new_empty(len(x), g.shape[-1], kh * kw * x.shape[-1] + ones, dtype=dtype)


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
        return products(*(lead(t, d, info.batch_size) for t, d in zip((x, kernel, bias), dims, strict=False)), w), 0


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
        return spread(*(lead(t, d, info.batch_size) for t, d in zip((g, kernel), dims, strict=False)), w), 0


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
        x, g = (lead(t, d, info.batch_size) for t, d in zip((x, g), dims, strict=False))
        return sums_of(x, g, w, ones), 0


def products(x: Tensor, kernel: Tensor, bias: Tensor | None, w: Windows2d) -> Tensor:
    """Multiply every client's windows by its kernel [clients, outputs, channels, kh, kw]."""
    arranged = kernel.permute(0, 1, 3, 4, 2).to(x.dtype).contiguous()
    return window_products(x.contiguous(), arranged, None if bias is None else bias.contiguous(), w.numbers(), w.tf32)


def spread(g: Tensor, kernel: Tensor, w: Windows2d) -> Tensor:
    """Multiply every client's outputs' gradients by its kernel [clients, outputs, channels, kh, kw]."""
    arranged = kernel.permute(0, 2, 3, 4, 1).to(g.dtype).contiguous()
    return window_spread(g.contiguous(), arranged, w.numbers(), w.tf32)


def sums_of(x: Tensor, g: Tensor, w: Windows2d, ones: bool) -> Tensor:
    """Multiply every client's outputs' gradients by its windows."""
    return window_sums(x.contiguous(), g.contiguous(), w.numbers(), ones, w.tf32)


def as_kernel(sums: Tensor, w: Windows2d) -> Tensor:
    """Return a matrix [outputs, kh * kw * channels] as a kernel [outputs, channels, kh, kw]."""
    return sums.unflatten(1, (*w.taps, -1)).permute(0, 3, 1, 2)


def lead(t: Tensor | None, dim: int | None, clients: int) -> Any:
    """Move the client axis to the front; what all clients share is repeated."""
    if t is None:
        return None
    return t.expand(clients, *t.shape) if dim is None else t.movedim(dim, 0)


def of_one_kernel(compute: Any, images: Tensor, dim: int) -> Tensor:
    """Compute the images of all clients, which share a kernel, as one batch."""
    images = images.movedim(dim, 0)
    out: Tensor = compute(images.flatten(0, 1))
    return out.unflatten(0, images.shape[:2])
