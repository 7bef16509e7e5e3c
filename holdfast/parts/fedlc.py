"""FedLC: calibrate logits by how often the client sees each class."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Batch, Client, Part, Tensors
from holdfast.models.net import Out

OUT = 1e4  # lowers a logit so far that its probability is exactly 0; infinity would make masked samples NaN


@dataclass(frozen=True)
class FedLC(Part):
    """Pairwise margins that are larger for rare classes (Eq. 5 of the paper):

        loss = cross-entropy(logits - tau * n_c^(-1/4))

    ``n_c`` is the client's number of samples of class c. For a class that the client lacks, the formula is infinite.
    ``missing=one`` counts it as one sample. ``missing=out`` takes the formula at its word, as much published code does:
    the class is taken out of the client's softmax, whatever ``tau`` is.
    """

    name = "fedlc"
    paper = "Zhang et al. 2022, Federated Learning with Label Distribution Skew via Logits Calibration"
    group = "baseline"
    summary = "Calibrates logits by class frequency"

    tau: float = param(1.0, "strength of the calibration; 0 is FedAvg", low=0, search=(0.1, 3, "log"), step_input=True)
    missing: str = param(
        "one", "a class that the client lacks: one sample, or out of the softmax", choices=("one", "out")
    )

    @property
    def needs(self) -> tuple[str, ...]:
        return ("classes",)

    def begin(self, c: Client) -> Tensors:
        margin = self.tau * c.counts.clamp(min=1).to(c.w0.dtype) ** -0.25
        return {"margin": torch.where(c.counts > 0, margin, OUT) if self.missing == "out" else margin}

    def task_loss(self, c: Client, out: Out, batch: Batch) -> Tensor:
        return batch.loss(out.logits - c.local["margin"])
