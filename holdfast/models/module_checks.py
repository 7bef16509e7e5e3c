"""Refuse modules that federated training would corrupt or silently change."""

from __future__ import annotations

from torch import nn

from holdfast.core.errors import HoldfastError


def refuse_running_statistics(module: nn.Module) -> None:
    """Raise an error for BatchNorm: its running statistics are not parameters, so clients cannot average them."""
    for name, sub in module.named_modules():
        running = getattr(sub, "running_mean", None) is not None
        if running or isinstance(sub, nn.modules.batchnorm._BatchNorm):
            raise HoldfastError(
                f"the model's layer {name!r} ({type(sub).__name__}) uses running or batch statistics, which federated "
                "averaging corrupts; convert the model with holdfast.to_groupnorm(module)"
            )


def refuse_frozen_parameters(module: nn.Module) -> None:
    """Raise an error for frozen parameters, since every parameter is trained."""
    for name, p in module.named_parameters():
        if not p.requires_grad:
            raise HoldfastError(
                f"the model's parameter {name!r} has requires_grad=False, but every parameter is trained; make it a "
                "buffer, or freeze layers with a part such as freeze(1)"
            )


def refuse_unsupported_dropout(module: nn.Module) -> None:
    """Raise an error for kinds of dropout that would silently do nothing."""
    for name, sub in module.named_modules():
        if isinstance(sub, nn.modules.dropout._DropoutNd) and not isinstance(sub, nn.Dropout):
            raise HoldfastError(f"the model's layer {name!r} ({type(sub).__name__}) is not supported; use nn.Dropout")
