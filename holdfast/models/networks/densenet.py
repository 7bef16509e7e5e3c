"""DenseNet-BC (Huang et al. 2017) with GroupNorm, in the paper's CIFAR form; FedAgg runs a DenseNet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.models.networks._layers import he_normal, image_shape, norm, with_stem_and_head
from holdfast.models.zoo import Model


class DenseLayer(nn.Module):
    """A 1x1 bottleneck, then a 3x3 convolution whose ``growth`` channels are appended to the input."""

    def __init__(self, inputs: int, growth: int, groups: int) -> None:
        super().__init__()
        self.norm1 = norm(inputs, groups)
        self.conv1 = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2 = norm(4 * growth, groups)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(F.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(F.relu(self.norm2(y)))], 1)


class Transition(nn.Module):
    """A 1x1 convolution to half the channels and a 2x2 mean-pool."""

    def __init__(self, inputs: int, groups: int) -> None:
        super().__init__()
        self.norm = norm(inputs, groups)
        self.conv = nn.Conv2d(inputs, inputs // 2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(self.conv(F.relu(self.norm(x))), 2)


class Dense(nn.Module):
    """A 3x3 stem, three blocks of ``layers`` dense layers, transitions between them, a norm, and the head.

    The units are the three blocks ("stage") or the dense layers ("block"). A transition belongs to the layer below it,
    the last norm to the last layer.
    """

    def __init__(self, channels: int, classes: int, layers: int, growth: int, groups: int) -> None:
        super().__init__()
        width1 = 2 * growth
        width2 = (width1 + layers * growth) // 2
        width3 = (width2 + layers * growth) // 2
        self.stem = nn.Conv2d(channels, width1, 3, padding=1, bias=False)
        self.block1 = dense_block(width1, layers, growth, groups)
        self.transition1 = Transition(width1 + layers * growth, groups)
        self.block2 = dense_block(width2, layers, growth, groups)
        self.transition2 = Transition(width2 + layers * growth, groups)
        self.block3 = dense_block(width3, layers, growth, groups)
        self.norm = norm(width3 + layers * growth, groups)
        self.head = nn.Linear(width3 + layers * growth, classes)
        stages = with_stem_and_head(["block1", "block2", "block3"])
        blocks = with_stem_and_head([f"block{b}.{i}" for b in (1, 2, 3) for i in range(layers)])
        for units, n in ((stages, 1), (blocks, layers)):
            units[n - 1].append("transition1")
            units[2 * n - 1].append("transition2")
            units[3 * n - 1].insert(-1, "norm")
        self.units = {"stage": stages, "block": blocks}
        he_normal(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.transition1(self.block1(self.stem(x)))
        x = self.block3(self.transition2(self.block2(x)))
        logits: Tensor = self.head(F.relu(self.norm(x)).mean((-2, -1)))
        return logits


def dense_block(inputs: int, layers: int, growth: int, groups: int) -> nn.Sequential:
    """Make dense layers in a row; each sees the outputs of all before it."""
    return nn.Sequential(*(DenseLayer(inputs + i * growth, growth, groups) for i in range(layers)))


@dataclass(frozen=True)
class DenseNet(Model):
    """DenseNet-BC with GroupNorm; by default with 100 layers and growth 12.

    The default, the paper's L=100 and k=12, has 769,162 parameters on CIFAR-10.
    Sized for 32 pixels; accepts images from 4 pixels. FedAgg does not say which DenseNet it ran; this is the smallest
    one in the paper's CIFAR table. Convolutions start He-normal (fan-out), as in the authors' code.
    """

    name: ClassVar[str] = "densenet"
    depth: int = param(100, "total number of layers: 6 n + 4", low=10)
    growth: int = param(12, "channels that each dense layer adds, k in the paper", low=1)
    groups: int = param(2, "groups of each GroupNorm", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.depth % 6 != 4:
            raise HoldfastError(f"densenet: depth is {self.depth}, expected 6 n + 4; use 10, 16, ..., 40 or 100")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, *_ = image_shape(self.name, shape, least=4)
        return Dense(channels, classes, (self.depth - 4) // 6, self.growth, self.groups)
