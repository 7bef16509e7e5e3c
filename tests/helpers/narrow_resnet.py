"""A ResNet that is small enough for tests of convolutions."""

from __future__ import annotations

import torch
from torch import nn

from holdfast.models.networks._layers import norm
from holdfast.models.networks.resnet import stage


class NarrowResNet(nn.Module):
    """The stem and two stages of a ResNet, with an eighth of its channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 7, 2, padding=3, bias=False), norm(8, 2), nn.ReLU())
        self.stages = nn.Sequential(nn.MaxPool2d(3, 2, 1), stage(8, 8, 1, 1, 2), stage(8, 16, 2, 2, 2))
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stages(self.stem(x)).mean((-2, -1)))
