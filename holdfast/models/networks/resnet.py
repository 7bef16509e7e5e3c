"""ResNet-18 and ResNet-34 (He et al. 2016) with GroupNorm in place of BatchNorm, as in FedBug and FedMRUR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.core.params import param
from holdfast.models.networks._layers import Layers, he_normal, image_shape, norm, sequential, with_stem_and_head
from holdfast.models.zoo import Model

STEMS = ("imagenet", "cifar")


class ResidualBlock(nn.Module):
    """A basic residual block: two 3x3 convolutions around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = norm(outputs, groups)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = norm(outputs, groups)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = sequential({"conv": conv, "norm": norm(outputs, groups)})

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """A stem, four stages of ``blocks`` residual blocks, the mean over positions, and the head.

    FedBug thaws one stage ("stage") or one residual block ("block") at a time.
    """

    def __init__(self, channels: int, classes: int, blocks: tuple[int, ...], groups: int, stem: str) -> None:
        super().__init__()
        self.stem = imagenet_stem(channels, groups) if stem == "imagenet" else cifar_stem(channels, groups)
        self.layer1 = stage(64, 64, blocks[0], 1, groups)
        self.layer2 = stage(64, 128, blocks[1], 2, groups)
        self.layer3 = stage(128, 256, blocks[2], 2, groups)
        self.layer4 = stage(256, 512, blocks[3], 2, groups)
        self.head = nn.Linear(512, classes)
        self.units = {
            "stage": with_stem_and_head([f"layer{s}" for s in range(1, 5)]),
            "block": with_stem_and_head([f"layer{s}.{b}" for s, n in enumerate(blocks, 1) for b in range(n)]),
        }
        he_normal(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(x)))))
        logits: Tensor = self.head(x.mean((-2, -1)))
        return logits


def imagenet_stem(channels: int, groups: int) -> nn.Sequential:
    """Make a 7x7 convolution and a max-pool, each with stride 2: a quarter of the resolution."""
    conv = nn.Conv2d(channels, 64, 7, 2, padding=3, bias=False)
    layers: Layers = {
        "conv": conv,
        "norm": norm(64, groups),
        "relu": nn.ReLU(),
        "pool": nn.MaxPool2d(3, 2, 1),
    }
    return sequential(layers)


def cifar_stem(channels: int, groups: int) -> nn.Sequential:
    """Make a 3x3 convolution that keeps the resolution."""
    conv = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
    return sequential({"conv": conv, "norm": norm(64, groups), "relu": nn.ReLU()})


def stage(inputs: int, outputs: int, blocks: int, stride: int, groups: int) -> nn.Sequential:
    """Make residual blocks of equal width; the first changes width and resolution."""
    first = ResidualBlock(inputs, outputs, stride, groups)
    return nn.Sequential(first, *(ResidualBlock(outputs, outputs, 1, groups) for _ in range(blocks - 1)))


@dataclass(frozen=True)
class ResNet18(Model):
    """ResNet-18 with GroupNorm: eight residual blocks in four stages.

    11,689,512 parameters on ImageNet, 11,181,642 on CIFAR-10.
    FedBug's published code keeps the ImageNet stem on 32 and 64 pixels, and has two groups in each GroupNorm.
    ``stem=cifar`` keeps the resolution (11,173,962 parameters on CIFAR-10) and costs 15 times as much; FNR-FL's
    published code uses it, with BatchNorm. Convolutions start He-normal (fan-out) as in torchvision, norm layers at
    weight 1 and bias 0. Accepts any image.
    """

    name: ClassVar[str] = "resnet18"
    groups: int = param(2, "groups of each GroupNorm", low=1)
    stem: str = param("imagenet", "7x7 stride 2 and max-pool, or 3x3", choices=STEMS)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, *_ = image_shape(self.name, shape)
        return ResNet(channels, classes, (2, 2, 2, 2), self.groups, self.stem)


@dataclass(frozen=True)
class ResNet34(Model):
    """ResNet-34 with GroupNorm: sixteen residual blocks in four stages.

    21,797,672 parameters on ImageNet. Otherwise like ``resnet18``.
    """

    name: ClassVar[str] = "resnet34"
    groups: int = param(2, "groups of each GroupNorm", low=1)
    stem: str = param("imagenet", "7x7 stride 2 and max-pool, or 3x3", choices=STEMS)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, *_ = image_shape(self.name, shape)
        return ResNet(channels, classes, (3, 4, 6, 3), self.groups, self.stem)
