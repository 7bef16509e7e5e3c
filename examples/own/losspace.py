"""A part of your own, in a file: smaller steps on batches that the model already knows.

holdfast methods --import examples/own/losspace.py losspace
holdfast run "losspace(0.5)+prox" --import examples/own/losspace.py
pytest examples/own/losspace.py
"""

from dataclasses import dataclass

import torch

from holdfast import Client, Part, Tensors, param
from holdfast.testing import check_part


@dataclass(frozen=True)
class LossPace(Part):
    """Multiplies each step by ``min(1, loss / mean loss so far)^power``, with the losses of this client's batches.

    The mean runs over the steps of the round, so that a client's first step is always whole.
    """

    name = "losspace"
    summary = "slower on batches that are known already"

    power: float = param(0.5, "how much the loss matters; 0 is FedAvg", low=0)

    def begin(self, c: Client) -> Tensors:
        return {"sum": torch.zeros_like(c.lr)}

    def direction(self, c: Client, g: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, Tensors]:
        total = c.local["sum"] + c.loss
        mean = (total / c.k.to(total.dtype)).clamp(min=1e-12)
        return (c.loss / mean).clamp(max=1) ** self.power * g, {"sum": total}


def test_it_keeps_the_laws() -> None:
    check_part(LossPace())
