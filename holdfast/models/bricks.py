"""What several networks are made of.

A plain network is a dictionary of named layers in forward order, put into one ``nn.Sequential`` by ``stack``:
its parameters are then called ``conv1.weight``, ``fc1.bias``, ``head.weight``. Nothing here works in place
and nothing keeps running statistics, so every network runs under ``functional_call``, ``vmap`` and ``grad``.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import nn

from holdfast.core.errors import HoldfastError
from holdfast.models.dropout import Dropout, dropping

Layers = dict[str, nn.Module]


def image(name: str, shape: tuple[int, ...], least: int = 1) -> tuple[int, int, int]:
    """Channels, height and width of ``shape``, or an error that says what the model called ``name`` needs."""
    if len(shape) != 3 or min(shape[1:]) < least:
        pixels = f" of at least {least} x {least} pixels" if least > 1 else ""
        raise HoldfastError(
            f"{name} needs images (channels, height, width){pixels}, not inputs of shape {tuple(shape)}; "
            "linear and mlp take any shape"
        )
    return shape[0], shape[1], shape[2]


def stack(layers: Layers) -> nn.Sequential:
    """Layers in forward order as one network; each keeps its name."""
    return nn.Sequential(OrderedDict(layers))


def conv(
    i: int, inputs: int, outputs: int, kernel: int, padding: int = 0, stride: int = 1, pool: bool = True
) -> Layers:
    """The ``i``-th convolution with its ReLU and, if wanted, a 2x2 max-pool."""
    layers: Layers = {
        f"conv{i}": nn.Conv2d(inputs, outputs, kernel, stride, padding),
        f"relu{i}": nn.ReLU(),
    }
    return layers | ({f"pool{i}": nn.MaxPool2d(2)} if pool else {})


def dense(
    layers: Layers,
    shape: tuple[int, ...],
    widths: Sequence[int],
    classes: int,
    dropout: float = 0.0,
    drop_head: bool = False,
) -> Layers:
    """``layers``, then hidden linear layers of ``widths`` with ReLU, then the head.

    Dropout, if any, comes before each hidden layer, and before the head when ``drop_head`` is set.
    """
    layers = layers | {"flat": nn.Flatten()}
    with torch.no_grad(), dropping(None):  # a meta tensor would do, but makes PyTorch import its compiler: a second
        width = stack(layers)(torch.zeros(1, *shape))[0].numel()
    for i, outputs in enumerate(widths, 1):
        if dropout:
            layers[f"drop{i}"] = Dropout(dropout, layer=i)
        layers |= {f"fc{i}": nn.Linear(width, outputs), f"fcrelu{i}": nn.ReLU()}
        width = outputs
    if drop_head:
        layers["drop"] = Dropout(dropout, layer=len(widths) + 1)
    return layers | {"head": nn.Linear(width, classes)}


def norm(channels: int, groups: int) -> nn.GroupNorm:
    """GroupNorm in ``groups`` groups, or in the most that divide both ``groups`` and ``channels``.

    >>> norm(64, 2).num_groups, norm(24, 32).num_groups
    (2, 8)
    """
    return nn.GroupNorm(math.gcd(groups, channels), channels)


def he_normal(net: nn.Module) -> None:
    """Draw convolutions with variance ``2 / (outputs * kernel area)`` (He et al. 2015, fan-out); biases 0."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def between(prefixes: Sequence[str]) -> list[list[str]]:
    """Units, one per prefix, bottom-up: the stem belongs to the first and the head to the last.

    >>> between(["layer1", "layer2"])
    [['stem', 'layer1'], ['layer2', 'head']]
    """
    units = [[prefix] for prefix in prefixes]
    units[0].insert(0, "stem")
    units[-1].append("head")
    return units
