"""Refuse modules that federated training would corrupt or silently change."""

from __future__ import annotations

from torch import nn

from holdfast.core.errors import HoldfastError


def refuse_tracking_instance_norm(module: nn.Module) -> None:
    """Raise an error for InstanceNorm that keeps running statistics: only those of BatchNorm are federated."""
    for name, sub in module.named_modules():
        if isinstance(sub, nn.modules.instancenorm._InstanceNorm) and sub.track_running_stats:
            raise HoldfastError(
                f"the model's layer {name!r} ({type(sub).__name__}) keeps running statistics, as only BatchNorm may; "
                "set track_running_stats=False, or convert the model with holdfast.to_groupnorm(module)"
            )


def require_trainable(module: nn.Module) -> None:
    """Raise an error if there is nothing to train."""
    if not any(p.requires_grad for p in module.parameters()):
        raise HoldfastError(
            "the model has no parameter to train: every one has requires_grad=False; leave it True for some of them"
        )
