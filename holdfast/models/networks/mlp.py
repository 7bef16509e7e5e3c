"""Networks without convolutions. They flatten their input, so they accept any shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from holdfast.core.params import param
from holdfast.models.dropout import Dropout
from holdfast.models.networks._layers import placed_after, sequential, with_classifier
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
    784-25-10 network of FedNLR's Appendix A, with 19,885 parameters; ``mlp(width=64, depth=1, dropout=0.5)`` with
    50,890 that of a well-known FedAvg implementation, without its softmax.
    """

    name: ClassVar[str] = "mlp"
    width: int = param(200, "units of each hidden layer", low=1)
    depth: int = param(2, "hidden layers", low=1)

    dropout: float = param(0.0, "probability of dropping a unit of a hidden layer", low=0, below=1)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        layers = with_classifier({}, shape, [self.width] * self.depth, classes)
        for i in range(1, self.depth + 1) if self.dropout else ():
            layers = placed_after(f"fcrelu{i}", f"drop{i}", Dropout(self.dropout, layer=i), layers)
        return sequential(layers)
