"""AlexNet (Krizhevsky 2014, the one-tower form)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from holdfast.core.params import param
from holdfast.models.networks._layers import Layers, conv, image_shape, sequential, with_classifier
from holdfast.models.zoo import Model


@dataclass(frozen=True)
class AlexNet(Model):
    """AlexNet in one tower: five convolutions of 64, 192, 384, 256 and 256 channels.

    In PyTorch's initialisation.
    FedAgg's Table VI runs it on CIFAR-10 without saying in which form. Here the size of the image decides:

    - Under 64 pixels, the usual CIFAR form: the first convolution is padded by 5 and pools are 2x2 (rounding up, so
      that 28 pixels work). One pixel is left of 32, and the head follows directly. 2,472,266 parameters on CIFAR-10.
    - From 64 pixels: pools are 3x3 with stride 2, then two hidden layers, each after dropout. On 224 pixels with 1000
      classes it has the 61,100,840 parameters of the original.
    """

    name: ClassVar[str] = "alexnet"
    hidden: int = param(4096, "units of each hidden linear layer (from 64 pixels)", low=1)
    dropout: float = param(0.5, "probability of dropping a unit before each hidden layer", low=0, below=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, *sides = image_shape(self.name, shape)
        if min(sides) < 64:
            return sequential(with_classifier(convolutions(channels, padding=5, pool=2), shape, (), classes))
        hidden = (self.hidden, self.hidden)
        return sequential(
            with_classifier(convolutions(channels, padding=2, pool=3), shape, hidden, classes, self.dropout)
        )


def convolutions(channels: int, padding: int, pool: int) -> Layers:
    """Make the five convolutions; the first, second and last end in a max-pool with stride 2."""
    layers = conv(1, channels, 64, 11, padding, stride=4, pool=False)
    layers["pool1"] = nn.MaxPool2d(pool, 2, ceil_mode=pool == 2)
    layers |= conv(2, 64, 192, 5, padding=2, pool=False)
    layers["pool2"] = nn.MaxPool2d(pool, 2, ceil_mode=pool == 2)
    layers |= conv(3, 192, 384, 3, padding=1, pool=False)
    layers |= conv(4, 384, 256, 3, padding=1, pool=False)
    layers |= conv(5, 256, 256, 3, padding=1, pool=False)
    layers["pool5"] = nn.MaxPool2d(pool, 2, ceil_mode=pool == 2)
    return layers
