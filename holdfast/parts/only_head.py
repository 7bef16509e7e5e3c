"""Train the classifier alone: how clients tune their personal models."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.method.part import Client, Part


@dataclass(frozen=True)
class OnlyHead(Part):
    """The counterpart of ``freeze(1)``: the classifier is trained, all other layers keep their weights."""

    name = "only-head"
    paper = "Oh et al. 2022, FedBABU: Toward Enhanced Representation for Federated Image Classification"
    internal = True

    @property
    def needs(self) -> tuple[str, ...]:
        return ("head",)

    def rate(self, c: Client) -> Tensor:
        return c.layout.head_mask().to(c.w0.dtype)
