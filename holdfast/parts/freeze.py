"""Never train the last layers: FedBABU, and an ablation of FedBug."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.method.part import Client, Part

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.method.config import Config
    from holdfast.method.method import Method
    from holdfast.models.net import Net


@dataclass(frozen=True)
class Freeze(Part):
    """The last layers keep their initial weights; only the layers below them are trained:

        rate = 0 in the last ``last`` layers, 1 elsewhere

    ``freeze(1)`` is FedBABU: all clients share one classifier, fixed from the start. ``freeze(2)`` is an ablation in
    FedBug's Fig. 4, where both do worse than FedAvg.
    """

    name = "freeze"
    paper = "Oh et al. 2022, FedBABU: Toward Enhanced Representation for Federated Image Classification"
    summary = "Never trains the last layers"

    last: int = param(
        1,
        "number of last layers that are never trained; 0 is FedAvg",
        low=0,
        search="it chooses layers: a matter of design",
    )

    def check(self, method: Method, config: Config, net: Net, federation: Federation) -> None:
        layers = net.layout.blocks("layer")
        if self.last >= layers:
            raise HoldfastError(
                f"freeze: last={self.last} leaves nothing to train in a model of {layers} layers; use a smaller last"
            )

    def rate(self, c: Client) -> Tensor:
        layers = c.layout.blocks("layer")
        free = torch.arange(layers, device=c.w0.device) < layers - self.last
        return c.layout.per_block(free.to(c.w0.dtype), "layer")
