"""LeNet-5 (LeCun et al. 1998) as it is trained today, and its sibling in NIID-Bench."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from holdfast.core.params import param
from holdfast.models.networks._layers import conv, image_shape, sequential, with_classifier
from holdfast.models.zoo import Model


@dataclass(frozen=True)
class LeNet5(Model):
    """LeNet-5 with ReLU and max-pooling.

    conv 5x5 (6 channels), pool, conv 5x5 (16 channels), pool, fc 120, fc 84, head. Made for 1x32x32: 61,706 parameters.
    Images under 32 pixels are padded by two in the first convolution, like MNIST's in the original; the
    minimum is 12 pixels. FedAgg uses it for EMNIST-Letters and CIFAR-10 and prints a flat size of 5x5x32, which means a
    second convolution of 32 channels (the first is not given): ``lenet5(second=32)``.
    """

    name: ClassVar[str] = "lenet5"
    first: int = param(6, "channels of the first convolution", low=1)
    second: int = param(16, "channels of the second convolution", low=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, *sides = image_shape(self.name, shape, least=12)
        padding = 2 if min(sides) < 32 else 0
        layers = conv(1, channels, self.first, 5, padding) | conv(2, self.first, self.second, 5)
        return sequential(with_classifier(layers, shape, (120, 84), classes))


@dataclass(frozen=True)
class SimpleCnn(Model):
    """The simple-cnn of NIID-Bench (Li et al. 2022).

    62,006 parameters on CIFAR-10, 44,426 on MNIST.
    As ``lenet5``, but without padding on images of any size; the minimum is 16 pixels.
    """

    name: ClassVar[str] = "simple-cnn"

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, *_ = image_shape(self.name, shape, least=16)
        return sequential(with_classifier(conv(1, channels, 6, 5) | conv(2, 6, 16, 5), shape, (120, 84), classes))
