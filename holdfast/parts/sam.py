"""SAM: take the gradient where the loss is highest nearby."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.core.params import param
from holdfast.method.part import Client, Gradient, Part


@dataclass(frozen=True)
class Sam(Part):
    """Sharpness-aware minimisation at every local step:

        g = gradient(w + rho * g0 / ||g0||),   g0 = gradient(w)

    The norm is taken over the whole model except its frozen blocks. Costs a second forward and backward pass per step.

    ``adaptive`` is ASAM (Kwon et al. 2021, Eq. 8), whose neighbourhood scales with the weights:

        g = gradient(w + rho * T^2 g0 / ||T g0||),   T = |w| + offset

    A usual radius is then ten times as large. ``offset`` is the paper's eta; 0 leaves it out.
    """

    name = "sam"
    paper = "Qu et al. 2022, Generalized Federated Learning via Sharpness Aware Minimization"
    summary = "Takes gradients where the loss is highest"

    rho: float = param(
        0.05, "radius of the neighbourhood; 0 is FedAvg", low=0, search=(5e-3, 0.5, "log"), step_input=True
    )
    adaptive: bool = param(False, "scale the neighbourhood with the size of each weight (ASAM)")
    offset: float = param(
        0.01,
        "adaptive: added to the size of a weight, so that zeros are perturbed too",
        low=0,
        search="it only keeps zeros from being left out",
        step_input=True,
    )

    def gradient(self, c: Client, grad_fn: Callable[[Tensor], Gradient], w: Tensor) -> Gradient:
        g, loss = grad_fn(w)
        uphill = g
        if self.adaptive:
            T = w.abs() + self.offset
            g = T * g
            uphill = T * g
        length = torch.linalg.vector_norm(g).clamp(min=torch.finfo(g.dtype).tiny)
        worst, _ = grad_fn(w + self.rho * (uphill / length))
        return worst, loss
