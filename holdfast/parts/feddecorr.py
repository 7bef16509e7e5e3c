"""FedDecorr: decorrelate features, so that they do not collapse into a few dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Batch, Client, Part
from holdfast.models.net import Out


@dataclass(frozen=True)
class FedDecorr(Part):
    """Decorrelation of the features z of a batch (Eq. 6 of the paper); K is their d x d correlation matrix:

        penalty = beta/d^2 * ||K||_F^2

    ``scale=code`` is the penalty of the authors' published code, which is larger by about the number n of samples in
    the batch. It does not divide Z^T Z by n - 1, and takes the mean over the d*(d-1) pairs of different features:

        penalty = beta * (n-1)^2/n * mean_{j != k} K_jk^2

    Features are standardised over the batch. A small constant under the root keeps a constant feature from being
    magnified. A batch of one sample has no correlations and no penalty. FedBug's code has the penalty of ``scale=code``
    with other constants: ``feddecorr(0.001, scale=code, eps=1e-8)``.
    """

    name = "feddecorr"
    paper = "Shi et al. 2023, Towards Understanding and Mitigating Dimensional Collapse in Federated Learning"
    group = "baseline"
    summary = "Decorrelates the features of a batch"

    beta: float = param(0.1, "strength of the penalty; 0 is FedAvg", low=0, search=(0.01, 1, "log"), step_input=True)
    scale: str = param(
        "paper", "scale of the penalty: as printed, or as in the authors' code", choices=("paper", "code")
    )
    eps: float = param(
        1e-5,
        "added to the variance of every feature",
        above=0,
        search="it only keeps the division finite",
        step_input=True,
    )

    @property
    def needs(self) -> tuple[str, ...]:
        return ("features",)

    def penalty(self, c: Client, out: Out, batch: Batch) -> Tensor:
        z, there = out.features, batch.mask[:, None]
        count = batch.mask.sum()
        centred = torch.where(there, z - torch.where(there, z, 0.0).sum(0) / count.clamp(min=1), 0.0)
        variance = (centred**2).sum(0) / (count - 1).clamp(min=1)
        unit = centred * torch.rsqrt(variance + self.eps)
        # ||Z^T Z||_F = ||Z Z^T||_F, and a batch usually has fewer samples than features.
        gram = unit @ unit.T / (count - 1).clamp(min=1)
        squares, d = (gram**2).sum(), z.shape[1]
        if self.scale == "paper":
            return self.beta / d**2 * squares
        diagonal = (unit**2).sum(0) / (count - 1).clamp(min=1)
        size = (count - 1).to(z.dtype) ** 2 / count.clamp(min=1)
        return self.beta * size * (squares - (diagonal**2).sum()) / max(d * (d - 1), 1)
