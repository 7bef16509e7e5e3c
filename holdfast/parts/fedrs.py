"""FedRS: restrict the softmax for classes that the client has never seen."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Batch, Client, Part, Tensors
from holdfast.models.net import Out


@dataclass(frozen=True)
class FedRS(Part):
    """Restricted softmax (Eq. 5 of the paper): the logits of classes that the client lacks are scaled down.

        loss = cross-entropy(s * logits),    s_c = alpha where n_c = 0, else 1

    Samples of other classes then push their classifier rows less. ``scaled=all`` is what the authors' published code
    does: it scales every class by its number of samples relative to the client's most frequent class.

        s_c = alpha + (1 - alpha) * n_c / max n
    """

    name = "fedrs"
    paper = "Li and Zhan 2021, FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data"
    group = "baseline"
    summary = "Protects classes that a client lacks"

    alpha: float = param(
        0.5, "scale of the missing classes' logits; 1 is FedAvg", low=0, high=1, search=(0, 1), step_input=True
    )
    scaled: str = param("missing", "which logits are scaled: all is by frequency", choices=("missing", "all"))

    @property
    def needs(self) -> tuple[str, ...]:
        return ("classes",)

    def begin(self, c: Client) -> Tensors:
        if self.scaled == "all":
            share = c.counts.to(c.w0.dtype) / c.counts.max().clamp(min=1)
            return {"scale": self.alpha + (1 - self.alpha) * share}
        return {"scale": torch.where(c.counts > 0, torch.ones_like(c.w0[:1]), self.alpha)}

    def task_loss(self, c: Client, out: Out, batch: Batch) -> Tensor:
        return batch.loss(out.logits * c.local["scale"])
