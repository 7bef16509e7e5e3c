"""Whether a network treats every sample by itself, so that it may run on those of several clients at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from holdfast.models.dropout import dropping
from holdfast.models.net import Net

# Functions of a row's numbers one by one.
ELEMENTWISE = {
    F.celu, F.elu, F.gelu, F.hardswish, F.hardtanh, F.leaky_relu, F.logsigmoid, F.mish, F.relu, F.relu6, F.selu, F.silu,
    F.softplus, F.softsign, torch.relu, torch.sigmoid, torch.tanh, Tensor.relu, Tensor.sigmoid, Tensor.tanh,
}  # fmt: skip
# Other shapes of the same numbers in the same order: rows stay apart if their number stays the same.
RESHAPING = {torch.flatten, torch.reshape, Tensor.flatten, Tensor.reshape, Tensor.view}
ASKING = {Tensor.dim, Tensor.size, Tensor.shape.__get__}  # type: ignore[attr-defined]


class RowByRow(TorchFunctionMode):
    """Watches whether a module treats every row by itself, and its parameters only as weights of products.

    Args:
        rows: The rows of the module's input.

    Attributes:
        holds: Whether that was so until now.
    """

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows, self.holds = rows, True

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if func in ASKING:
            return found
        known = func in ELEMENTWISE or func in RESHAPING
        if func is F.linear:
            known = args[0].dim() > 1 and not isinstance(args[0], nn.Parameter)
        elif any(isinstance(a, nn.Parameter) for a in args):
            known = False
        self.holds &= known and found.dim() > 0 and found.shape[0] == self.rows
        return found


def works_row_by_row(net: Net, example: Tensor) -> bool:
    """Tell whether a network consists of products with its weights and functions of each row, in full precision.

    Args:
        net: The network, whose inputs are one tensor of numbers. Dropout may occur in it as a module.
        example: Two inputs.

    Returns:
        Whether it can train on the samples of several clients at once.
    """
    special = net.convolutional or net.stats or net.intercepted or net.random or net.tied
    if special or net.precision == "bf16":
        return False
    rows = example.clone()  # the network may write over its input
    watched = RowByRow(len(rows))
    with torch.no_grad(), dropping(None), watched:
        net.body(rows)
    return watched.holds
