"""FedDF: distil the cohort's models into the averaged model, on public inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.core.params import param
from holdfast.method.part import Part, Round, Tensors
from holdfast.parts._distillation import adam, adam_state, cosine, gradient_from_logits, minibatches, part_key
from holdfast.parts._public_data import require_public_data

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.method.config import Config
    from holdfast.method.method import Method
    from holdfast.models.net import Net


@dataclass(frozen=True)
class FedDF(Part):
    """Ensemble distillation (Alg. 1 of the paper). After the server step the model w is trained on public inputs x,
    whose labels are not used, to match the mean of the cohort's logits. Adam's rate falls along a cosine:

        minimise  T^2 * KL( softmax( mean_k f(x; w_k) / T ) || softmax( f(x; w) / T ) )

    The teachers' mean is computed as f(x; w) + mean_k (f(x; w_k) - f(x; w)), with w from the server step. The number is
    the same, but if no client moved, it is exact and the model does not move either. The paper stops early with a
    labelled validation set. The server has none here, so the number of steps is fixed.
    """

    name = "feddf"
    paper = "Lin et al. 2020, Ensemble Distillation for Robust Model Fusion in Federated Learning"
    group = "baseline"
    summary = "Distils the clients' models at the server"

    steps: int = param(100, "distillation steps per round; 0 is FedAvg", low=0, search=(10, 1000, "log"))
    batch: int = param(64, "public inputs per step", low=1, search="its cost decides")
    eta: float = param(1e-3, "initial learning rate of Adam", above=0, search=(1e-5, 1e-2, "log"))
    T: float = param(1.0, "temperature of both softmaxes", above=0, search=(0.5, 8, "log"))

    @property
    def needs(self) -> tuple[str, ...]:
        return ("classes",)

    def check(self, method: Method, config: Config, net: Net, federation: Federation) -> None:
        require_public_data(self.name, federation)

    def tune(self, s: Tensors, r: Round, w: Tensor) -> tuple[Tensor, Tensors]:
        start, state = w, adam_state(w)
        x, lead = self.teaching(r, w)
        for step, rows in enumerate(minibatches(len(lead), self.batch, self.steps, part_key(r.key(), self.name))):
            chosen = tree_map(lambda t, rows=rows: t[rows], x)
            teacher = torch.softmax((r.net(start, chosen).logits + lead[rows]) / self.T, 1)
            g = gradient_from_logits(r.net, w, chosen, lambda logits, p=teacher: self.gap(logits, p))  # type: ignore[misc]
            w, state = adam(w, g, state, cosine(self.eta, step, self.steps))
        return w, {}

    def teaching(self, r: Round, w: Tensor) -> tuple[Any, Tensor]:
        """Return the public inputs, and the mean of the clients' logits minus the model's logits on each of them."""
        inputs, lead = [], []
        for batch in r.public():
            mine = r.net(w, batch.x).logits
            inputs.append(batch.x)
            lead.append(torch.stack([r.net(r.w + delta, batch.x).logits - mine for delta in r.deltas]).mean(0))
        return tree_map(lambda *parts: torch.cat(parts), *inputs), torch.cat(lead)

    def gap(self, logits: Tensor, teacher: Tensor) -> Tensor:
        """Return the derivative of a batch's mean loss with respect to the student's logits."""
        return self.T * (torch.softmax(logits / self.T, 1) - teacher) / len(logits)
