"""Layers that are never trained: FedBABU, and an ablation of FedBug."""

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
    """The last layers keep their initial weights; only what lies below them is trained:

        rate = 0 in the last ``last`` layers, 1 elsewhere

    ``freeze(1)`` is FedBABU: all clients share one classifier, fixed from the start. ``freeze(2)`` is the ablation of
    FedBug's Fig. 4. Both do worse than FedAvg there.
    """

    name = "freeze"
    paper = "Oh et al. 2022, FedBABU: Toward Enhanced Representation for Federated Image Classification"

    last: int = param(1, "how many of the last layers are never trained; 0 is FedAvg", low=0)

    def check(self, method: Method, config: Config, net: Net, federation: Federation) -> None:
        layers = net.layout.blocks("layer")
        if self.last >= layers:
            raise HoldfastError(
                f"freeze: the model has only {layers} layers, so that last={self.last} leaves none to train"
            )

    def rate(self, c: Client) -> Tensor:
        layers = c.layout.blocks("layer")
        free = torch.arange(layers, device=c.w0.device) < layers - self.last
        return c.layout.per_block(free.to(c.w0.dtype), "layer")
