"""GoogLeNet (Szegedy et al. 2015) with GroupNorm, sized for 32 pixels; FedAgg runs it on CIFAR-10."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from holdfast.core.params import param
from holdfast.models.networks._layers import Layers, he_normal, image_shape, norm, sequential, with_stem_and_head
from holdfast.models.zoo import Model

# Table 1 of the paper: channels of 1x1 | 3x3 reduce, 3x3 | 5x5 reduce, 5x5 | pool projection.
STAGE3 = {"a": (64, 96, 128, 16, 32, 32), "b": (128, 128, 192, 32, 96, 64)}
STAGE4 = {
    "a": (192, 96, 208, 16, 48, 64),
    "b": (160, 112, 224, 24, 64, 64),
    "c": (128, 128, 256, 24, 64, 64),
    "d": (112, 144, 288, 32, 64, 64),
    "e": (256, 160, 320, 32, 128, 128),
}
STAGE5 = {"a": (256, 160, 320, 32, 128, 128), "b": (384, 192, 384, 48, 128, 128)}
Widths = tuple[int, int, int, int, int, int]


class Inception(nn.Module):
    """Four branches side by side, their channels joined; two 3x3 convolutions replace the 5x5."""

    def __init__(self, inputs: int, widths: Widths, groups: int) -> None:
        super().__init__()
        one, reduce3, three, reduce5, five, project = widths
        self.one = unit(inputs, one, 1, groups)
        self.three = nn.Sequential(unit(inputs, reduce3, 1, groups), unit(reduce3, three, 3, groups))
        self.five = nn.Sequential(
            unit(inputs, reduce5, 1, groups), unit(reduce5, five, 3, groups), unit(five, five, 3, groups)
        )
        self.project = nn.Sequential(nn.MaxPool2d(3, 1, padding=1), unit(inputs, project, 1, groups))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.project(x)], 1)


class Inceptions(nn.Module):
    """A 3x3 stem of 192 channels, nine inceptions in three stages, the mean over positions, and the head.

    The units are the three stages ("stage") or the nine inceptions ("block").
    """

    def __init__(self, channels: int, classes: int, groups: int) -> None:
        super().__init__()
        self.stem = unit(channels, 192, 3, groups)
        self.stage3 = stage(192, STAGE3, groups)
        self.pool3 = nn.MaxPool2d(3, 2, padding=1)
        self.stage4 = stage(480, STAGE4, groups)
        self.pool4 = nn.MaxPool2d(3, 2, padding=1)
        self.stage5 = stage(832, STAGE5, groups)
        self.head = nn.Linear(1024, classes)
        blocks = [f"stage{s}.{b}" for s, table in ((3, STAGE3), (4, STAGE4), (5, STAGE5)) for b in table]
        self.units = {"stage": with_stem_and_head(["stage3", "stage4", "stage5"]), "block": with_stem_and_head(blocks)}
        he_normal(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool3(self.stage3(self.stem(x)))
        x = self.stage5(self.pool4(self.stage4(x)))
        logits: Tensor = self.head(x.mean((-2, -1)))
        return logits


def unit(inputs: int, outputs: int, kernel: int, groups: int) -> nn.Sequential:
    """Make a convolution that keeps the resolution, its norm and a ReLU."""
    conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
    return sequential({"conv": conv, "norm": norm(outputs, groups), "relu": nn.ReLU()})


def stage(inputs: int, table: dict[str, Widths], groups: int) -> nn.Sequential:
    """Make inceptions in a row, named by their letters."""
    layers: Layers = {}
    for letter, widths in table.items():
        layers[letter] = Inception(inputs, widths, groups)
        one, _, three, _, five, project = widths
        inputs = one + three + five + project
    return sequential(layers)


@dataclass(frozen=True)
class GoogLeNet(Model):
    """GoogLeNet's nine inceptions with GroupNorm, in the usual CIFAR form.

    The widths are those of the paper's Table 1: 6,158,346 parameters on CIFAR-10.
    One 3x3 convolution is the whole stem, two 3x3 convolutions replace each 5x5, and there are neither auxiliary
    classifiers nor dropout. Convolutions have no bias, since a norm follows. Accepts any image.
    """

    name: ClassVar[str] = "googlenet"
    groups: int = param(2, "groups of each GroupNorm", low=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, *_ = image_shape(self.name, shape)
        return Inceptions(channels, classes, self.groups)
