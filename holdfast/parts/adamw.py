"""Local AdamW: Adam with weight decay apart from the gradient, as in PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Client, Part, Tensors
from holdfast.parts._adam_step import STATE, adam_step
from holdfast.parts._optimiser_state import closed, empty, opened


@dataclass(frozen=True)
class AdamW(Part):
    """The local optimiser is Adam, and the weights decay apart from the gradient (Alg. 2 of the paper):

        w  <-  w - eta * (adam(d) + decay * w)

    as in ``torch.optim.AdamW``; d is the direction of the other parts, and ``adam`` is the step of the part of that
    name. The decay is neither clipped nor divided by the root of v. ``decay`` and ``--weight-decay`` would add a second
    decay to the gradient and are refused: set the parameter ``decay``.
    """

    name = "adamw"
    paper = "Loshchilov et al. 2019, Decoupled Weight Decay Regularization"
    summary = "Runs AdamW at the clients"
    keeps = "moments of Adam"
    excludes: ClassVar[dict[str, str]] = {"decay": "adamw decays the weights itself, by its parameter decay"}

    beta1: float = param(0.9, "decay of the first moment", low=0, below=1, search="the usual value serves")
    beta2: float = param(0.999, "decay of the second moment", low=0, below=1, search="the usual value serves")
    eps: float = param(
        1e-8,
        "keeps the step finite where gradients vanish",
        above=0,
        search="it only keeps a division finite",
        step_input=True,
    )
    decay: float = param(
        0.01, "strength of the weight decay; 0 is Adam", low=0, search=(1e-4, 0.1, "log"), step_input=True
    )
    keep: bool = param(False, "whether m, v and t stay at the client between rounds")

    def init_client(self, w: Tensor) -> Tensors:
        return empty(w, *STATE) if self.keep else {}

    def begin(self, c: Client) -> Tensors:
        return opened(c, *STATE)

    def optimise(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        step, moments = adam_step(c, g, (self.beta1, self.beta2), self.eps)
        return step + self.decay * w, moments

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        return {}, closed(c) if self.keep else {}
