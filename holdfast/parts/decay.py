"""Weight decay, as in SGD."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Client, Part, Tensors


@dataclass(frozen=True)
class Decay(Part):
    """Adds the gradient of ``weight/2 * ||w||^2``:

        direction = g + weight * w

    The flag ``--weight-decay`` adds this part at the end of the sum, after ``clip``, as in PyTorch's SGD. A
    local optimiser comes after both.
    """

    name = "decay"
    paper = "Krogh and Hertz 1991, A Simple Weight Decay Can Improve Generalization"
    summary = "Decays the weights in every local step"

    weight: float = param(
        5e-4, "strength of the decay; 0 is FedAvg", low=0, search=(1e-5, 1e-2, "log"), step_input=True
    )

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return g + self.weight * w, {}
