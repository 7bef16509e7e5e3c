"""Networks without convolutions. They flatten their input, so they accept any shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from holdfast.core.params import param
from holdfast.models.networks._layers import sequential, with_classifier
from holdfast.models.zoo import Model


@dataclass(frozen=True)
class Linear(Model):
    """Multinomial logistic regression: one linear layer.

    FedAgg's MNIST-Linear, with 7,850 parameters on MNIST.
    """

    name: ClassVar[str] = "linear"

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return sequential(with_classifier({}, shape, (), classes))


@dataclass(frozen=True)
class Mlp(Model):
    """Hidden layers with ReLU; by default the 2NN of McMahan et al. (2017).

    In PyTorch's initialisation. The default has 199,210 parameters on MNIST. ``mlp(width=25, depth=1)`` is the
    784-25-10 network of FedNLR's Appendix A, with 19,885 parameters.
    """

    name: ClassVar[str] = "mlp"
    width: int = param(200, "units of each hidden layer", low=1)
    depth: int = param(2, "hidden layers", low=1)
    dropout: float = param(0.0, "probability of dropping a hidden unit", low=0, below=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        widths = [self.width] * self.depth
        layers = with_classifier({}, shape, widths, classes, self.dropout, drop_head=self.dropout > 0)
        layers.pop("drop1", None)  # inputs are not hidden units
        return sequential(layers)
