"""FedLC: calibrate logits by how often the client sees each class."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Batch, Client, Part, Tensors
from holdfast.models.net import Out


@dataclass(frozen=True)
class FedLC(Part):
    """Pairwise margins that are larger for rare classes (Eq. 5 of the paper):

        loss = cross-entropy(logits - tau * n_c^(-1/4))

    ``n_c`` is the client's number of samples of class c. A class that the client lacks counts as one sample, because
    the formula would be infinite.
    """

    name = "fedlc"
    paper = "Zhang et al. 2022, Federated Learning with Label Distribution Skew via Logits Calibration"
    group = "baseline"
    summary = "Calibrates logits by class frequency"

    tau: float = param(1.0, "strength of the calibration; 0 is FedAvg", low=0)

    def begin(self, c: Client) -> Tensors:
        return {"margin": self.tau * c.counts.clamp(min=1).to(c.w0.dtype) ** -0.25}

    def task_loss(self, c: Client, out: Out, batch: Batch) -> Tensor:
        return batch.cross_entropy(out.logits - c.local["margin"])
