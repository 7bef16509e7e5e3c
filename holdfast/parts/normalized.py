"""FedMRUR's aggregation: give the mean of the deltas their mean length."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.method.part import Part, Round


@dataclass(frozen=True)
class Normalized(Part):
    """Normalised aggregation (Alg. 1, line 15 of the paper):

        update = (mean_i ||delta_i||) * (sum_i delta_i) / ||sum_i delta_i||

    The mean of deltas that point in different directions is short; this part restores the length of a typical delta.
    The signs in the paper's Alg. 1 are inconsistent. With delta = local - global, the model moves by ``+ update``. When
    the deltas cancel up to rounding, the direction of their mean is noise, and the update is the plain mean.
    """

    name = "normalized"
    paper = "An et al. 2023, Federated Learning with Manifold Regularization and Normalized Update Reaggregation"
    summary = "Restores the length of the mean update"
    uniform = True

    def aggregate(self, r: Round) -> Tensor:
        lengths = torch.linalg.vector_norm(r.deltas, dim=1)
        mean = r.deltas.mean(0)
        length = torch.linalg.vector_norm(mean)
        noise = 8 * torch.finfo(mean.dtype).eps * (lengths.mean() + torch.linalg.vector_norm(r.w))
        scale = torch.where(length > noise, lengths.mean() / torch.where(length > noise, length, 1.0), 1.0)
        return mean * scale
