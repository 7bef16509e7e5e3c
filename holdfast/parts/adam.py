"""Local Adam, as in PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Client, Part, Tensors
from holdfast.parts._adam_step import STATE, adam_step
from holdfast.parts._optimiser_state import closed, empty, opened


@dataclass(frozen=True)
class Adam(Part):
    """The local optimiser is Adam. With d the direction of all other parts, including clip and decay, at step t

        m  <-  beta1 * m + (1 - beta1) * d
        v  <-  beta2 * v + (1 - beta2) * d^2
        w  <-  w - eta * m/(1 - beta1^t) / (sqrt(v/(1 - beta2^t)) + eps)

    as in ``torch.optim.Adam``. It comes after all other directions, wherever it is in the sum. Each client starts from
    zero in every round; with ``keep=true``, m, v and t stay at the client until it is drawn again. A frozen coordinate
    keeps its m and v, and the step does not count for it. Rates such as those of ``fednlr`` multiply the step, not the
    gradient, whose scale does not matter to Adam.

    A step is not a sum of gradients with known weights, so parts that divide by these weights (``nova``, ``fedcm``)
    are refused. ``adamw`` decays the weights apart from the gradient; ``fedadam`` runs Adam at the server.
    """

    name = "adam"
    paper = "Kingma and Ba 2015, Adam: A Method for Stochastic Optimization"
    summary = "Runs Adam at the clients"
    keeps = "moments of Adam"

    beta1: float = param(0.9, "decay of the first moment", low=0, below=1, search="the usual value serves")
    beta2: float = param(0.999, "decay of the second moment", low=0, below=1, search="the usual value serves")
    eps: float = param(
        1e-8,
        "keeps the step finite where gradients vanish",
        above=0,
        search="it only keeps a division finite",
        step_input=True,
    )
    keep: bool = param(False, "whether m, v and t stay at the client between rounds")

    def init_client(self, w: Tensor) -> Tensors:
        return empty(w, *STATE) if self.keep else {}

    def begin(self, c: Client) -> Tensors:
        return opened(c, *STATE)

    def optimise(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return adam_step(c, g, (self.beta1, self.beta2), self.eps)

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        return {}, closed(c) if self.keep else {}
