"""The small convolutional networks of FedBug, FedAgg and PyTorch's MNIST example, all in PyTorch's initialisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from holdfast.core.params import param
from holdfast.models.dropout import Dropout
from holdfast.models.networks._layers import conv, image_shape, placed_after, sequential, with_classifier
from holdfast.models.zoo import Model


@dataclass(frozen=True)
class Cnn(Model):
    """The CNN of FedBug's and FedDyn's published code; it depends on the size of the image.

    - From 28 pixels (MNIST, CIFAR): conv 5x5, pool, conv 5x5, pool, fc 384, fc 192, head; no padding. 797,962
      parameters on CIFAR-10.
    - From 64 pixels (Tiny ImageNet): a third conv 5x5 and pool, then fc 256, fc 128, head. 530,888 parameters with 200
      classes.
    - Under 28 pixels (our addition, for small images such as the 8x8 digits): as from 28 pixels, but the convolutions
      are 3x3 with padding, so that images down to 4 pixels work.
    """

    name: ClassVar[str] = "cnn"
    width: int = param(64, "channels of each convolution", low=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, *sides = image_shape(self.name, shape, least=4)
        kernel, padding = (5, 0) if min(sides) >= 28 else (3, 1)
        depth, hidden = (3, (256, 128)) if min(sides) >= 64 else (2, (384, 192))
        layers = conv(1, channels, self.width, kernel, padding)
        for i in range(2, depth + 1):
            layers |= conv(i, self.width, self.width, kernel, padding)
        return sequential(with_classifier(layers, shape, hidden, classes))


@dataclass(frozen=True)
class MnistCnn(Model):
    """FedAgg's MNIST-CNN, which is the CNN of McMahan et al. (2017).

    1,663,370 parameters on MNIST.
    Two 5x5 convolutions with padding (32 and 64 channels, the latter from FedAgg's 7x7x64), each with a 2x2 max-pool, a
    hidden layer of 512 and the head. FedAgg mentions a "ReLU output layer"; here no ReLU follows the logits.
    """

    name: ClassVar[str] = "mnist-cnn"

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, *_ = image_shape(self.name, shape, least=4)
        layers = conv(1, channels, 32, 5, padding=2) | conv(2, 32, 64, 5, padding=2)
        return sequential(with_classifier(layers, shape, [512], classes))


@dataclass(frozen=True)
class Cifar10Cnn(Model):
    """FedAgg's Cifar10-CNN, with dropout.

    553,514 parameters on CIFAR-10.
    Three 3x3 convolutions, each with a 2x2 max-pool, leave 4x4x64; then dropout, a hidden layer of 512, dropout and the
    head. The paper gives neither the first two widths nor the dropout rate. Our choice is 16, 32 and 0.25: the widths
    double up to the 64 that it prints.
    """

    name: ClassVar[str] = "cifar10-cnn"
    dropout: float = param(0.25, "probability of dropping a unit before each linear layer", low=0, below=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, *_ = image_shape(self.name, shape, least=8)
        layers = conv(1, channels, 16, 3, 1) | conv(2, 16, 32, 3, 1) | conv(3, 32, 64, 3, 1)
        return sequential(with_classifier(layers, shape, [512], classes, self.dropout, drop_head=True))


@dataclass(frozen=True)
class MnistExampleCnn(Model):
    """The CNN of PyTorch's early MNIST example, which many FedAvg implementations use, with dropout.

    21,840 parameters on MNIST.
    Two 5x5 convolutions (10 and 20 channels) without padding, each with a 2x2 max-pool, a hidden layer of 50 and the
    head. In training, half of the second convolution's channels are dropped, and half of the hidden units.
    """

    name: ClassVar[str] = "mnist-example-cnn"

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, *_ = image_shape(self.name, shape, least=16)
        layers = with_classifier(conv(1, channels, 10, 5) | conv(2, 10, 20, 5), shape, [50], classes)
        layers = placed_after("conv2", "drop_channels", Dropout(0.5, layer=2, channels=True), layers)
        return sequential(placed_after("fcrelu1", "drop1", Dropout(0.5, layer=1), layers))
