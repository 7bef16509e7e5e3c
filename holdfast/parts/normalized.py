"""FedMRUR's aggregation: give the mean of the deltas their mean length."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Part, Round, Tensors


@dataclass(frozen=True)
class Normalized(Part):
    """Normalised aggregation (Alg. 1, line 15 of the paper):

        update = (mean_i ||delta_i||) * (sum_i delta_i) / ||sum_i delta_i||

    The mean of deltas that point in different directions is short; this part restores the length of a typical delta.
    The signs in the paper's Alg. 1 are inconsistent. With delta = local - global, the model moves by ``+ update``. When
    the deltas cancel up to rounding, the direction of their mean is noise, and the update is the plain mean.

    ``at=step``: the update stays the plain mean, as in the paper's Lemma 7, and only the server's step is rescaled.
    FedCM's D is then made from the plain mean, so that the longer step does not return in every local step.
    """

    name = "normalized"
    paper = "An et al. 2023, Federated Learning with Manifold Regularization and Normalized Update Reaggregation"
    summary = "Restores the length of the mean update"
    uniform = True

    at: str = param(
        "update", "what is rescaled: the update that other parts see, or the server's step", choices=("update", "step")
    )

    @property
    def unused(self) -> tuple[str, ...]:
        return ("server_step",) if self.at == "update" else ("aggregate",)

    def aggregate(self, r: Round) -> Tensor:
        return rescaled(r.deltas.mean(0), torch.linalg.vector_norm(r.deltas, dim=1).mean(), r.w)

    def server_step(self, s: Tensors, r: Round) -> Tensor:
        return r.w + rescaled(r.update, r.mean(torch.linalg.vector_norm(r.deltas, dim=1)), r.w)


def rescaled(mean: Tensor, length: Tensor, w: Tensor) -> Tensor:
    """Give a mean of deltas another length, unless its direction is noise.

    Args:
        mean: The mean.
        length: The mean length of the deltas.
        w: The model, whose size decides what counts as noise.

    Returns:
        The rescaled mean.
    """
    found = torch.linalg.vector_norm(mean)
    noise = 8 * torch.finfo(mean.dtype).eps * (length + torch.linalg.vector_norm(w))
    return mean * torch.where(found > noise, length / torch.where(found > noise, found, 1.0), 1.0)
