"""A 2x2 max-pool as comparisons of the four corners of each window, which a compiler fuses with the layers around it.

PyTorch's max-pool stores where each maximum was and reads it again in the backward pass. Here the backward pass
compares again, which on a GPU is far cheaper than the memory traffic.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))  # in the order in which PyTorch looks for the maximum


def corners(x: Tensor) -> list[Tensor]:
    """Return the four corners of every window, [..., rows, columns] each; an odd last row or column is left out."""
    rows, columns = x.shape[-2] // 2 * 2, x.shape[-1] // 2 * 2
    return [x[..., i:rows:2, j:columns:2] for i, j in CORNERS]


class MaxOfCorners(torch.autograd.Function):
    """The maximum of every window; the gradient goes to the first corner that has it, as in PyTorch."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        a, b, c, d = corners(x)
        return torch.maximum(torch.maximum(a, b), torch.maximum(c, d))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x, most = ctx.saved_tensors
        (height, width), (rows, columns) = x.shape[-2:], most.shape[-2:]
        a, b, c, _ = corners(x)
        which = torch.where(a == most, 0, torch.where(b == most, 1, torch.where(c == most, 2, 3)))
        corner = torch.arange(4, device=x.device).reshape(2, 1, 2)
        share = torch.where(spread(which) == corner, spread(g), 0.0)  # [..., rows, 2, columns, 2]
        whole = share.reshape(*most.shape[:-2], 2 * rows, 2 * columns)
        return F.pad(whole, (0, width - 2 * columns, 0, height - 2 * rows))


def spread(t: Tensor) -> Tensor:
    """Repeat one value per window at each of its corners: [..., rows, 2, columns, 2]."""
    return t[..., :, None, :, None].expand(*t.shape[:-1], 2, t.shape[-1], 2)


class CornerPool2d(nn.Module):
    """Computes the same as ``nn.MaxPool2d(2)``."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = MaxOfCorners.apply(x)  # type: ignore[no-untyped-call]
        return out


def is_corner_pool(module: nn.Module) -> bool:
    """Tell whether ``CornerPool2d`` can replace a module."""
    if not isinstance(module, nn.MaxPool2d) or module.ceil_mode or module.return_indices:
        return False
    return (
        module.kernel_size in (2, (2, 2))
        and module.stride in (2, (2, 2))
        and module.padding in (0, (0, 0))
        and module.dilation in (1, (1, 1))
    )


def pool_before_relu(module: nn.Module) -> None:
    """Move max-pools before the ReLU that directly precedes them: the same values and gradients with less work."""
    for sub in module.modules():
        if type(sub) is nn.Sequential:
            for left, right in pairwise(list(sub._modules)):
                one, two = sub._modules[left], sub._modules[right]
                if isinstance(one, nn.ReLU) and isinstance(two, CornerPool2d | nn.MaxPool2d):
                    sub._modules[left], sub._modules[right] = two, one
