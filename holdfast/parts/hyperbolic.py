"""FedMRUR's regulariser: keep features close to the global model's, measured in hyperbolic space."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Batch, Client, Part, Tensors
from holdfast.models.net import Out

LARGEST = 50.0  # beyond this exponent the penalty continues as a straight line


@dataclass(frozen=True)
class Hyperbolic(Part):
    """Hyperbolic graph fusion (Eq. 2-3 of the paper). The features z of the local and zg of the global model on the
    same batch are lifted to the Lorentz model, ``L(z) = (sqrt(beta + ||z||^2), z)``:

        dist    = -2*beta - 2*<L(z), L(zg)>
        penalty = gamma * mean exp(dist / sigma)

    The distance is computed as ``||z - zg||^2 - (a - b)^2`` with the first coordinates a and b, in float64, because the
    printed form loses every digit when features are close. At w = w0 the distance is 0, its smallest value.
    ``space=euclidean`` (the paper's Table 8) drops ``(a - b)^2``. ``space=input`` (Table 9, for which the paper gives
    no formula) lifts each sample's input together with its features: beta + ||x||^2 replaces beta. Costs one more
    forward pass per step.
    """

    name = "hyperbolic"
    paper = "An et al. 2023, Federated Learning with Manifold Regularization and Normalized Update Reaggregation"
    summary = "Keeps features near the global model's"

    gamma: float = param(
        0.005, "strength of the penalty; 0 is FedAvg", low=0, search=(1e-4, 0.1, "log"), step_input=True
    )
    sigma: float = param(1e4, "scale of the distance", above=0, search=(1e2, 1e6, "log"), step_input=True)
    beta: float = param(
        1.0, "parameter of the Lorentz model", above=0, search="left at the paper's value", step_input=True
    )
    space: str = param("hyperbolic", "where the distance is measured", choices=("hyperbolic", "euclidean", "input"))

    @property
    def needs(self) -> tuple[str, ...]:
        return ("features", "numbers") if self.space == "input" else ("features",)

    def teachers(self, c: Client) -> Tensors:
        return {"global": c.w0}

    def penalty(self, c: Client, out: Out, batch: Batch) -> Tensor:
        z, zg = out.features.double(), c.teacher["global"].features.double()
        if self.space == "euclidean":
            dist = ((z - zg) ** 2).sum(1)
        else:
            extra = (batch.x.flatten(1).double() ** 2).sum(1) if self.space == "input" else 0.0
            dist = lorentz_distance(z, zg, self.beta + extra)
        return self.gamma * batch.mean(growth(dist / self.sigma)).to(out.logits.dtype)


def lorentz_distance(z: Tensor, zg: Tensor, beta: Tensor | float) -> Tensor:
    """Return the squared Lorentzian distance of rows, ||z - zg||^2 - (a - b)^2, exact even for close rows.

    Args:
        z: Features of the local model.
        zg: Features of the global model on the same samples.
        beta: The parameter of the Lorentz model, a number or one per row.

    Returns:
        One distance per row.
    """
    d = z - zg
    a, b = (torch.sqrt(beta + (v * v).sum(-1)) for v in (z, zg))
    gap = (d * (z + zg)).sum(-1) / (a + b)
    return (d * d).sum(-1) - gap**2


def growth(x: Tensor) -> Tensor:
    """Return exp(x), continued as a straight line where it would overflow."""
    return torch.exp(x.clamp(max=LARGEST)) * (1 + (x - LARGEST).clamp(min=0))
