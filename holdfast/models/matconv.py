"""A convolution as one matrix product, which stays one batched product when every client has its own kernel.

Under ``vmap`` a convolution becomes a grouped one, far from what a GPU can do. Written as kernel [out, K] times windows
[K, batch * positions] it becomes a batched matrix product over clients, forward and backward.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class MatConv2d(nn.Module):
    """Computes what the given ``nn.Conv2d`` computes, with the same parameters."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = conv.weight, conv.bias
        self.size, self.stride = conv.kernel_size, conv.stride
        assert not isinstance(conv.padding, str)
        self.padding = conv.padding

    def forward(self, x: Tensor) -> Tensor:
        (kh, kw), (sh, sw), (ph, pw) = self.size, self.stride, self.padding
        batch = x.shape[0]
        x = F.pad(x.transpose(0, 1), (pw, pw, ph, ph))  # [in, batch, height, width]
        windows = x.unfold(2, kh, sh).unfold(3, kw, sw)  # [in, batch, rows, columns, kh, kw]
        rows, columns = windows.shape[2:4]
        flat = windows.permute(0, 4, 5, 1, 2, 3).reshape(-1, batch * rows * columns)
        out = self.weight.flatten(1) @ flat
        if self.bias is not None:
            out = out + self.bias[:, None]
        return out.reshape(-1, batch, rows, columns).transpose(0, 1)


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
