"""Layers that several networks share.

A plain network is a dictionary of named layers in forward order, turned into one ``nn.Sequential`` by ``sequential``.
Its parameters are then called ``conv1.weight``, ``fc1.bias``, ``head.weight``. Nothing here works in place or keeps
running statistics, so every network runs under ``functional_call``, ``vmap`` and ``grad``.
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


def image_shape(name: str, shape: tuple[int, ...], least: int = 1) -> tuple[int, int, int]:
    """Check that inputs are images.

    Args:
        name: The model, for the error message.
        shape: The shape of one input.
        least: The smallest height and width that the model accepts.

    Returns:
        Channels, height and width.
    """
    if len(shape) != 3 or min(shape[1:]) < least:
        pixels = f" of at least {least} x {least} pixels" if least > 1 else ""
        raise HoldfastError(
            f"{name} needs images (channels, height, width){pixels}, not inputs of shape {tuple(shape)}; "
            "use linear or mlp, which accept any shape"
        )
    return shape[0], shape[1], shape[2]


def sequential(layers: Layers) -> nn.Sequential:
    """Join layers in forward order into one network; each keeps its name."""
    return nn.Sequential(OrderedDict(layers))


def conv(
    i: int, inputs: int, outputs: int, kernel: int, padding: int = 0, stride: int = 1, pool: bool = True
) -> Layers:
    """Make the ``i``-th convolution with its ReLU and, optionally, a 2x2 max-pool."""
    layers: Layers = {
        f"conv{i}": nn.Conv2d(inputs, outputs, kernel, stride, padding),
        f"relu{i}": nn.ReLU(),
    }
    return layers | ({f"pool{i}": nn.MaxPool2d(2)} if pool else {})


def with_classifier(
    layers: Layers,
    shape: tuple[int, ...],
    widths: Sequence[int],
    classes: int,
    dropout: float = 0.0,
    drop_head: bool = False,
) -> Layers:
    """Append hidden linear layers with ReLU, then the head.

    Args:
        layers: The layers below.
        shape: The shape of one input of the network.
        widths: The units of each hidden layer.
        classes: The number of classes.
        dropout: The probability of dropping a unit before each hidden layer; 0 for no dropout.
        drop_head: Whether to drop units before the head too.

    Returns:
        All layers, in forward order.
    """
    layers = layers | {"flat": nn.Flatten()}
    # A meta tensor would do, but importing PyTorch's compiler for it takes a second.
    with torch.no_grad(), dropping(None):
        width = sequential(layers)(torch.zeros(1, *shape))[0].numel()
    for i, outputs in enumerate(widths, 1):
        if dropout:
            layers[f"drop{i}"] = Dropout(dropout, layer=i)
        layers |= {f"fc{i}": nn.Linear(width, outputs), f"fcrelu{i}": nn.ReLU()}
        width = outputs
    if drop_head:
        layers["drop"] = Dropout(dropout, layer=len(widths) + 1)
    return layers | {"head": nn.Linear(width, classes)}


def placed_after(name: str, new: str, layer: nn.Module, layers: Layers) -> Layers:
    """Insert a layer behind a named one.

    Args:
        name: The layer before it.
        new: Its name.
        layer: The layer.
        layers: All others, in forward order.

    Returns:
        All layers.
    """
    places = list(layers).index(name) + 1
    items = list(layers.items())
    return dict([*items[:places], (new, layer), *items[places:]])


def norm(channels: int, groups: int) -> nn.GroupNorm:
    """Make a GroupNorm with ``groups`` groups, or with the most that divide both ``groups`` and ``channels``.

    >>> norm(64, 2).num_groups, norm(24, 32).num_groups
    (2, 8)
    """
    return nn.GroupNorm(math.gcd(groups, channels), channels)


def he_normal(net: nn.Module) -> None:
    """Draw convolutions with variance ``2 / (outputs * kernel area)`` (He et al. 2015, fan-out); set biases to 0."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def with_stem_and_head(prefixes: Sequence[str]) -> list[list[str]]:
    """Make a block of each prefix, bottom-up; the stem joins the first block and the head the last.

    >>> with_stem_and_head(["layer1", "layer2"])
    [['stem', 'layer1'], ['layer2', 'head']]
    """
    blocks = [[prefix] for prefix in prefixes]
    blocks[0].insert(0, "stem")
    blocks[-1].append("head")
    return blocks
