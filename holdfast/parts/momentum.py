"""Local SGD with momentum, as in PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Client, Part, Tensors
from holdfast.parts._optimiser_state import closed, empty, opened

STATE = (("m",), "gain")  # the vector and the counter of the optimiser's state


@dataclass(frozen=True)
class Momentum(Part):
    """The local optimiser is SGD with momentum. With d the direction of all other parts, including clip and decay,

        m     <-  beta * m + d
        step  =   m,    or  d + beta * m  with ``nesterov=true``
        w     <-  w - eta * step

    as in ``torch.optim.SGD``. It comes after all other directions, wherever it is in the sum. Each client starts from
    m = 0 in every round; with ``keep=true``, m stays at the client until it is drawn again. Frozen coordinates keep
    their m.

    A constant direction is multiplied by the gain ``1 + beta + beta^2 + ...`` in the long run, which is 10 for 0.9:
    lower the learning rate accordingly. Parts that divide an update by the weight of its gradients (``nova``,
    ``fedcm``) take the gain of every step into account.
    """

    name = "momentum"
    paper = "Polyak 1964, Some Methods of Speeding up the Convergence of Iteration Methods"
    summary = "Runs SGD with momentum at the clients"
    keeps = "momentum"

    beta: float = param(
        0.9, "share of the old momentum to keep; 0 is FedAvg", low=0, below=1, search=(0, 0.99), step_input=True
    )
    nesterov: bool = param(False, "whether to look one step ahead")
    keep: bool = param(False, "whether m stays at the client between rounds")

    def init_client(self, w: Tensor) -> Tensors:
        return empty(w, *STATE) if self.keep else {}

    def begin(self, c: Client) -> Tensors:
        return opened(c, *STATE)

    def gain(self, c: Client) -> Tensor:
        gain = self._next(c)
        return 1 + self.beta * gain if self.nesterov else gain

    def optimise(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        m = self.beta * c.local["m"] + g
        return g + self.beta * m if self.nesterov else m, {"m": m, "gain": self._next(c)}

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        return {}, closed(c) if self.keep else {}

    def _next(self, c: Client) -> Tensor:
        """Return what m would be if every direction had been 1."""
        return 1 + self.beta * c.local["gain"]
