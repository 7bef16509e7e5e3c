"""quantize: what clients upload travels as whole numbers of a few bits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.core.tensors import PerPart
from holdfast.method.part import Client, Part, Sent, Tensors
from holdfast.models.batchnorm import STATISTICS

LEVELS, STEP = "levels", "step"


@dataclass(frozen=True)
class Quantize(Part):
    """Every number that a client uploads becomes one of 2^bits - 1 levels, evenly spaced and symmetric around zero:

        q(x)  =  step * round(x / step),    step = max|x| / (2^(bits-1) - 1)

    What rounding takes away from a delta is added to the client's next one (error feedback, Alg. 2 of Karimireddy et
    al. 2019), so that it is late, not lost:

        sent  =  q(delta + e),    e  <-  delta + e - sent

    An entry that is zero stays so, and what it is owed waits: after ``topk`` no entry comes back that it has left out.
    Uploads of parts are rounded without feedback, those that are single numbers and BatchNorm's statistics not at all.
    """

    name = "quantize"
    paper = "Karimireddy et al. 2019, Error Feedback Fixes SignSGD and other Gradient Compression Schemes"
    group = "trust"
    summary = "Sends numbers of a few bits"
    keeps = "what rounding took away from its update"
    follows: ClassVar[dict[str, str]] = {"send": "it rounds what the others send"}

    bits: int = param(8, "bits of a number", low=2, high=16, search="it trades accuracy for traffic")
    feedback: bool = param(True, "add what rounding took away to the next update")

    @property
    def unused(self) -> tuple[str, ...]:
        return () if self.feedback else ("init_client",)

    def init_client(self, w: Tensor) -> Tensors:
        return {"error": torch.zeros_like(w)}

    def send(self, c: Client, sent: Sent) -> tuple[Sent, Tensors]:
        error = c.state["error"] if self.feedback else torch.zeros_like(sent.delta)
        whole = torch.where(sent.delta == 0, 0.0, sent.delta + error)
        delta = self.rounded(whole)
        uploads: PerPart = {
            part: {name: t if unrounded(part, t) else self.rounded(t) for name, t in tensors.items()}
            for part, tensors in sent.uploads.items()
        }
        return Sent(delta, uploads), {"error": error + sent.delta - delta} if self.feedback else {}

    @property
    def most(self) -> int:
        """The highest level."""
        return (1 << (self.bits - 1)) - 1

    def step(self, t: Tensor) -> Tensor:
        """Return the distance between levels."""
        return t.abs().amax() / self.most

    def rounded(self, t: Tensor) -> Tensor:
        """Return every number's nearest level."""
        step = self.step(t)
        return step * torch.round(t / torch.where(step == 0, 1.0, step))

    # -- as bytes -------------------------------------------------------------------------------------------
    def encodes(self, name: str, t: Tensor) -> bool:
        return not unrounded(name, t)

    def encode(self, t: Tensor) -> Tensors:
        step = self.step(t)
        levels = torch.nan_to_num(torch.round(t / torch.where(step == 0, 1.0, step))).long() + self.most
        bits = (levels.reshape(-1, 1).cpu().numpy() >> np.arange(self.bits)) & 1
        return {LEVELS: torch.from_numpy(np.packbits(bits.astype(np.uint8))), STEP: step}

    def decode(self, found: Tensors, like: Tensor) -> Tensor:
        bits = np.unpackbits(found[LEVELS].cpu().numpy(), count=like.numel() * self.bits)
        levels: Any = bits.reshape(-1, self.bits).astype(np.int64) @ (1 << np.arange(self.bits))
        whole = torch.from_numpy(levels - self.most).to(like.dtype).reshape(like.shape)
        return whole * found[STEP].to(like.dtype).cpu()


def unrounded(name: str, t: Tensor) -> bool:
    """Tell whether a tensor, of this part or under this name, travels as it is."""
    return STATISTICS in name or not t.is_floating_point() or math.prod(t.shape) < 2
