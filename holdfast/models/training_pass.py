"""A forward pass in training: what the module calls from PyTorch is computed so that every engine agrees.

The module runs in its training mode. BatchNorm leaves padding out and returns its new statistics instead of storing
them; every kind of dropout takes its mask from a key. Whatever else the module calls is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from holdfast.models.attention import attend, attend_with_projections
from holdfast.models.batched_clients import batched
from holdfast.models.batchnorm import BatchNorms
from holdfast.models.dropout import draw, drop_alpha, drop_channels, drop_units
from holdfast.models.recurrent import CELLS, run_recurrent


class TrainingPass(TorchFunctionMode):
    """Intercepts what a module calls while it runs.

    Attributes:
        norms: The BatchNorm layers of the pass.
        mask: False where a row of the batch is padding; None: there is no padding.
        batch: The rows of the batch.
        unbatchable: How many calls PyTorch can batch over clients only while it differentiates.
    """

    def __init__(self, norms: BatchNorms, mask: Tensor | None, batch: int) -> None:
        super().__init__()
        self.norms, self.mask, self.batch, self.unbatchable = norms, mask, batch, 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        replacement = REPLACEMENTS.get(func)
        kwargs = kwargs or {}
        return func(*args, **kwargs) if replacement is None else replacement(self, *args, **kwargs)


def _batch_norm(
    p: TrainingPass, input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False, momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    if not training:
        return F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    return p.norms.normalise(input, running_mean, weight, bias, eps, p.mask)


def _dropout(p: TrainingPass, input: Tensor, p_: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return drop_units(input, p_, p.batch) if training and p_ > 0 else input


def _channels(p: TrainingPass, input: Tensor, p_: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return drop_channels(input, p_) if training and p_ > 0 else input


def _alpha(p: TrainingPass, input: Tensor, p_: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    return drop_alpha(input, p_) if training and p_ > 0 else input


def _feature_alpha(
    p: TrainingPass, input: Tensor, p_: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    return drop_alpha(input, p_, channels=True) if training and p_ > 0 else input


def _named_p(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Accept the probability under PyTorch's name for it, ``p``."""

    def call(passed: TrainingPass, *args: Any, **kwargs: Any) -> Tensor:
        if "p" in kwargs:
            kwargs["p_"] = kwargs.pop("p")
        return function(passed, *args, **kwargs)

    return call


def _bernoulli(p: TrainingPass, input: Tensor, chance: float = 0.5, *, generator: object = None) -> Tensor:
    """Fill a tensor with ones and zeros: what drop-path layers do."""
    number = draw(tuple(input.shape))
    if number is None:
        return input.bernoulli_(chance)
    return input.copy_((number < chance).to(input.dtype))


def _rand(p: TrainingPass, *size: Any, **options: Any) -> Tensor:
    """Draw uniform numbers: what the drop-path layers of Hugging Face do."""
    shape = size[0] if size and not isinstance(size[0], int) else size
    number = None if {*options} - {"dtype", "device"} else draw(tuple(shape))
    if number is None:
        return torch.rand(*size, **options)
    return number.to(options.get("device"), options.get("dtype") or torch.get_default_dtype())


def _attention(p: TrainingPass, *args: Any, **kwargs: Any) -> Tensor:
    p.unbatchable += 1
    dropped = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
    return (attend if dropped or batched() else F.scaled_dot_product_attention)(*args, **kwargs)


def _multi_head(p: TrainingPass, *args: Any, **kwargs: Any) -> Any:
    p.unbatchable += 1
    training = kwargs.get("training", args[13] if len(args) > 13 else True)
    own = (training and args[10]) or batched()
    return (attend_with_projections if own else F.multi_head_attention_forward)(*args, **kwargs)


def _recurrent(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compute a recurrent layer step by step where PyTorch cannot, or would drop units by its own generator."""

    def call(p: TrainingPass, *args: Any) -> Any:
        p.unbatchable += 1
        dropped, train = (args[5], args[6]) if len(args) == 9 else (0.0, False)
        return run_recurrent(function, p.batch, *args) if batched() or (dropped and train) else function(*args)

    return call


class EvaluationPass(TorchFunctionMode):
    """Lets recurrent layers and attention be batched over clients in a pass without gradients."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not batched():
            return func(*args, **kwargs)
        if func in CELLS:
            return run_recurrent(func, None, *args)
        if func is F.scaled_dot_product_attention:
            return attend(*args, **kwargs)
        return (attend_with_projections if func is F.multi_head_attention_forward else func)(*args, **kwargs)


REPLACEMENTS: dict[Callable[..., Any], Callable[..., Any]] = {
    F.batch_norm: _batch_norm,
    F.dropout: _named_p(_dropout),
    F.dropout1d: _named_p(_channels),
    F.dropout2d: _named_p(_channels),
    F.dropout3d: _named_p(_channels),
    F.alpha_dropout: _named_p(_alpha),
    F.feature_alpha_dropout: _named_p(_feature_alpha),
    F.scaled_dot_product_attention: _attention,
    F.multi_head_attention_forward: _multi_head,
    torch.Tensor.bernoulli_: _bernoulli,
    torch.rand: _rand,
    **{function: _recurrent(function) for function in CELLS},
}
