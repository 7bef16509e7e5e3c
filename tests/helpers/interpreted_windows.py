"""Run the Triton programs in Triton's interpreter, on a CPU, and compare them with PyTorch's own convolutions.

    TRITON_INTERPRET=1 python tests/helpers/interpreted_windows.py

prints the largest relative difference. The interpreter must be chosen before Triton is imported, hence a process.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from holdfast.models.window_convolution import live
from holdfast.models.window_launch import launch_products, launch_sums, spread_axes, window_axis
from holdfast.models.window_rules import product_blocks, sum_blocks

# kernel, stride, padding, size of the image, channels, outputs
CASES = [
    (5, 1, 0, 8, 3, 8),  # several taps share a block
    (3, 1, 1, 5, 16, 20),  # a block is one tap
    (3, 2, 1, 6, 16, 4),
    (7, 2, 3, 9, 1, 4),
    (1, 2, 0, 5, 16, 16),  # with places that no window reads
    (3, 1, 1, 1, 16, 16),  # eight of nine taps never meet the image
    (3, 2, 1, 2, 16, 4),
]


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())


def worst(case: tuple[int, int, int, int, int, int], clients: int = 2, batch: int = 3) -> float:
    kernel, stride, padding, size, channels, outputs = case
    w, weight = live(
        torch.randn(clients * outputs, channels, kernel, kernel), (size, size), (stride,) * 2, (padding,) * 2, False
    )
    weight = weight.reshape(clients, outputs, channels, *w.taps).permute(0, 1, 3, 4, 2).contiguous()
    x, g = torch.randn(clients, batch, size, size, channels), torch.randn(clients, batch, *w.grid, outputs)
    bias = torch.randn(clients, outputs)
    operators = torch.ops.holdfast
    forward = [window_axis(w.grid[i], w.taps[i], w.stride[i], w.padding[i]) for i in (0, 1)]
    blocks = replace(product_blocks(channels, outputs, False), rows=16)
    out = torch.full_like(g, torch.nan)
    launch_products(x, weight, bias, out, (forward[0], forward[1]), blocks, "ieee")
    found = [apart(out, operators.window_products(x.double(), weight.double(), bias.double(), w.numbers(), False))]
    turned = weight.permute(0, 4, 2, 3, 1).contiguous()
    back = [spread_axes(w.image[i], w.taps[i], w.stride[i], w.padding[i]) for i in (0, 1)]
    blocks = replace(product_blocks(outputs, channels, False), rows=16)
    dx = torch.full_like(x, torch.nan)
    for axes in ((v, h) for v in back[0] for h in back[1]):
        launch_products(g, turned, None, dx, axes, blocks, "ieee")
    found.append(apart(dx, operators.window_spread(g.double(), turned.double(), w.numbers(), False)))
    blocks = sum_blocks(channels, outputs, weight[0, 0].numel(), False)
    for ones, parts in ((False, 1), (True, 3)):
        sums = launch_sums(x, g, w.taps, w.stride, w.padding, ones, parts, blocks, "ieee")
        found.append(apart(sums, operators.window_sums(x.double(), g.double(), w.numbers(), ones, False)))
    return max(found)


if __name__ == "__main__":
    torch.manual_seed(0)
    print(max(float(torch.tensor(worst(case)).nan_to_num(nan=torch.inf)) for case in CASES))
