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

    Samples of other classes then push their classifier rows less.
    """

    name = "fedrs"
    paper = "Li and Zhan 2021, FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data"
    group = "baseline"
    summary = "Protects classes that a client lacks"

    alpha: float = param(0.5, "scale of the missing classes' logits; 1 is FedAvg", low=0, high=1)

    def begin(self, c: Client) -> Tensors:
        return {"scale": torch.where(c.counts > 0, torch.ones_like(c.w0[:1]), self.alpha)}

    def task_loss(self, c: Client, out: Out, batch: Batch) -> Tensor:
        return batch.cross_entropy(out.logits * c.local["scale"])
