"""VGG networks (Simonyan and Zisserman 2015) in the sizes that federated papers use, without norm layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from holdfast.core.params import param
from holdfast.models.dropout import Dropout
from holdfast.models.networks._layers import (
    Layers,
    conv,
    he_normal,
    image_shape,
    placed_after,
    sequential,
    with_classifier,
)
from holdfast.models.zoo import Model

Stages = tuple[tuple[int, ...], ...]


def stages(channels: int, widths: Stages, ceil: bool = False) -> Layers:
    """Make 3x3 convolutions in stages of the given channels; each stage ends in a 2x2 max-pool."""
    layers: Layers = {}
    i = 0
    for stage, outputs in enumerate(widths, 1):
        for width in outputs:
            i += 1
            layers |= conv(i, channels, width, 3, padding=1, pool=False)
            channels = width
        layers[f"pool{stage}"] = nn.MaxPool2d(2, ceil_mode=ceil)
    return layers


@dataclass(frozen=True)
class Vgg9(Model):
    """FedNLR's VGG-9, which is that of FedMA and NIID-Bench.

    3,491,530 parameters on CIFAR-10.
    Six 3x3 convolutions (32, 64 | 128, 128 | 256, 256), fc 512, fc 512, head. In FedNLR's initialisation:
    convolutions Kaiming-uniform (bound ``sqrt(6 / fan_in)``), linear layers Xavier-normal (standard deviation
    ``sqrt(2 / (inputs + outputs))``); biases start at zero. FedNLR mentions no dropout; ``dropout=true`` has that of
    NIID-Bench's network, which the paper cites: 5% of the channels after the second pool, 10% of the units before the
    first linear layer and before the head.
    """

    name: ClassVar[str] = "vgg9"
    dropout: bool = param(False, "drop channels and units as NIID-Bench's network does")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, *_ = image_shape(self.name, shape, least=8)
        layers = stages(channels, ((32, 64), (128, 128), (256, 256)))
        if self.dropout:
            layers = placed_after("pool2", "drop_channels", Dropout(0.05, layer=3, channels=True), layers)
        layers = with_classifier(layers, shape, (512, 512), classes)
        if self.dropout:
            layers = placed_after("flat", "drop1", Dropout(0.1, layer=1), layers)
            layers = placed_after("fcrelu2", "drop2", Dropout(0.1, layer=2), layers)
        net = sequential(layers)
        for module in net:
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight)
            if isinstance(module, nn.Linear):
                nn.init.xavier_normal_(module.weight)
            if isinstance(module, (nn.Conv2d, nn.Linear)) and module.bias is not None:
                nn.init.zeros_(module.bias)
        return net


@dataclass(frozen=True)
class Vgg11(Model):
    """VGG-11 (configuration A) in its CIFAR form, with dropout, as in FNR-FL and FedAgg.

    9,750,922 parameters on CIFAR-10.
    As in FNR-FL's published code: eight 3x3 convolutions and five pools leave one pixel of a 32-pixel image; then two
    hidden layers of 512, each after dropout, and the head. Convolutions start He-normal (fan-out), linear layers in
    PyTorch's initialisation. Pools round up, so that images whose size is not a multiple of 32 pixels work too.
    ``vgg11(hidden=4096)`` on 224 pixels has the 132,863,336 parameters of the original.
    """

    name: ClassVar[str] = "vgg11"
    hidden: int = param(512, "units of each hidden linear layer", low=1)
    dropout: float = param(0.5, "probability of dropping a unit before each hidden linear layer", low=0, below=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, *_ = image_shape(self.name, shape)
        layers = stages(channels, ((64,), (128,), (256, 256), (512, 512), (512, 512)), ceil=True)
        net = sequential(with_classifier(layers, shape, (self.hidden, self.hidden), classes, self.dropout))
        he_normal(net)
        return net
