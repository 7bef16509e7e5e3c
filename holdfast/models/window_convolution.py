"""A convolution that reads its windows in place while several clients are computed at once.

As matrix products, convolutions write every window to memory, many times what the images need, and that traffic is most
of a step on a GPU. ``window_operators`` has operators that do without.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from holdfast.models.batched_clients import batched
from holdfast.models.corner_pooling import CornerPool2d, is_corner_pool
from holdfast.models.product_convolution import ProductConv2d, is_product_convolution
from holdfast.models.window_gradients import WindowProducts
from holdfast.models.window_operators import Windows2d
from holdfast.models.window_rules import reads_in_place


class WindowConv2d(ProductConv2d):
    """Computes the same as the given ``nn.Conv2d``, with the same parameters.

    Args:
        conv: The convolution.
        tf32: Whether numbers of 32 bits may be rounded to TF32.
    """

    def __init__(self, conv: nn.Conv2d, tf32: bool) -> None:
        super().__init__(conv)
        self.tf32 = tf32

    def forward(self, x: Tensor) -> Tensor:
        if not batched():
            return super().forward(x)
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        places, weight = live(self.weight, (x.shape[2], x.shape[3]), self.stride, self.padding, self.tf32)
        positions = places.grid[0] * places.grid[1]
        if not reads_in_place(weight.shape[1], len(weight), positions, x.element_size() == 2):
            return super().forward(x)
        out: Tensor = WindowProducts.apply(x.permute(0, 2, 3, 1), weight, self.bias, places)  # type: ignore[no-untyped-call]
        return out.permute(0, 3, 1, 2)


def live(
    weight: Tensor, image: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int], tf32: bool
) -> tuple[Windows2d, Tensor]:
    """Leave out the taps of a kernel that never meet the image, as eight of nine on an image of one pixel.

    Args:
        weight: The kernel, [outputs, channels, kh, kw].
        image: Height and width of an image.
        stride: How far apart the windows are.
        padding: The zeros on each side of an image.
        tf32: Whether numbers of 32 bits may be rounded to TF32.

    Returns:
        The windows, and the kernel that is left.
    """
    count, taps, before = [], [], []
    for axis in (0, 1):
        size, step, pad = image[axis], stride[axis], padding[axis]
        many = (size + 2 * pad - weight.shape[2 + axis]) // step + 1
        first = max(0, pad - (many - 1) * step)
        last = min(weight.shape[2 + axis], size + pad)
        if (first, last) != (0, weight.shape[2 + axis]):
            weight = weight.narrow(2 + axis, first, last - first)
        count.append(many)
        taps.append(last - first)
        before.append(pad - first)
    return Windows2d(image, (taps[0], taps[1]), (count[0], count[1]), stride, (before[0], before[1]), tf32), weight


def with_windows(module: nn.Module, tf32: bool) -> nn.Module:
    """Replace the convolutions and pools of a module, in place, and return it."""
    for name, sub in list(module.named_modules()):
        parent, _, child = name.rpartition(".")
        if name and is_product_convolution(sub):
            assert isinstance(sub, nn.Conv2d)
            setattr(module.get_submodule(parent), child, WindowConv2d(sub, tf32))
        elif name and is_corner_pool(sub):
            setattr(module.get_submodule(parent), child, CornerPool2d())
    return module
