"""topk: a client sends the largest entries of its update alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Client, Part, Sent, Tensors

PLACES, VALUES = "places", "values"


@dataclass(frozen=True)
class TopK(Part):
    """The share of a delta's entries with the largest absolute values travels; the others wait (Alg. 1 of the paper):

        sent  =  top_k(delta + e),    e  <-  delta + e - sent

    with k = share * P, rounded up, of the P parameters that travel. Without ``feedback`` the others are dropped, and
    small entries that point the same way in every round never arrive. What parts upload travels whole.
    """

    name = "topk"
    paper = "Stich et al. 2018, Sparsified SGD with Memory"
    group = "trust"
    summary = "Sends the largest entries alone"
    keeps = "the entries that it has not sent"

    share: float = param(
        0.1, "share of the entries that travel", above=0, high=1, search="it trades accuracy for traffic"
    )
    feedback: bool = param(True, "keep the others for the next update")

    @property
    def unused(self) -> tuple[str, ...]:
        return () if self.feedback else ("init_client",)

    def init_client(self, w: Tensor) -> Tensors:
        return {"error": torch.zeros_like(w)}

    def send(self, c: Client, sent: Sent) -> tuple[Sent, Tensors]:
        whole = sent.delta + c.state["error"] if self.feedback else sent.delta
        places = largest(whole, self.count(len(whole) - len(c.net.kept)))
        delta = torch.zeros_like(whole).scatter(0, places, whole.gather(0, places))
        return sent._replace(delta=delta), {"error": whole - delta} if self.feedback else {}

    def count(self, P: int) -> int:
        """Return how many of P entries travel.

        >>> TopK(0.1).count(59), TopK(0.1).count(60)
        (6, 6)
        """
        return -int(-self.share * P // 1)

    # -- as bytes -------------------------------------------------------------------------------------------
    def encodes(self, name: str, t: Tensor) -> bool:
        return name == "delta"

    def encode(self, t: Tensor) -> Tensors:
        places = largest(t, self.count(len(t))).sort().values
        return {PLACES: places.to(torch.int32), VALUES: t[places]}

    def decode(self, found: Tensors, like: Tensor) -> Tensor:
        places = found[PLACES].long()
        if bool((places < 0).any() | (places >= len(like)).any()):
            raise ValueError("it names entries that the model does not have")
        return torch.zeros(like.shape, dtype=like.dtype).scatter(0, places, found[VALUES].to(like.dtype).cpu())


def largest(t: Tensor, count: int) -> Tensor:
    """Return the places of the entries with the largest absolute values; of equal ones, the first."""
    return torch.argsort(t.abs(), descending=True, stable=True)[:count]
