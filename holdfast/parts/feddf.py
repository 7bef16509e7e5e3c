"""FedDF: the averaged model learns from all clients' models at once, on public inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.method.part import Part, Round, Tensors
from holdfast.parts._distillation import adam, cosine, own, passes, pull, unmoved

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.method.config import Config
    from holdfast.method.method import Method
    from holdfast.models.net import Net


@dataclass(frozen=True)
class FedDF(Part):
    """Ensemble distillation (Alg. 1 of the paper). After the server step the model w is trained on public inputs x,
    whose labels are not used, towards the mean of the cohort's logits, by Adam at a rate that falls along a cosine:

        minimise  T^2 * KL( softmax( mean_k f(x; w_k) / T ) || softmax( f(x; w) / T ) )

    The teachers' mean is computed as f(x; w) + mean_k (f(x; w_k) - f(x; w)), with w as it came from the server step:
    the same number, but where nobody moved nothing moves. The paper stops early by a labelled validation set, which
    the server does not have here: the budget is fixed.
    """

    name = "feddf"
    paper = "Lin et al. 2020, Ensemble Distillation for Robust Model Fusion in Federated Learning"

    steps: int = param(100, "distillation steps in a round; 0 is FedAvg", low=0)
    batch: int = param(64, "public inputs in a step", low=1)
    eta: float = param(1e-3, "first learning rate of Adam", above=0)
    T: float = param(1.0, "temperature of both softmaxes", above=0)

    def check(self, method: Method, config: Config, net: Net, federation: Federation) -> None:
        if len(federation.public) == 0:
            raise HoldfastError(
                "feddf needs public data: hold some out with --public 0.05, or federate(..., public=0.05)"
            )
        if federation.leaks:
            raise HoldfastError(
                "feddf: public data is the test data, so that test accuracy means nothing; hold training data out with "
                "--public 0.05"
            )

    def tune(self, s: Tensors, r: Round, w: Tensor) -> tuple[Tensor, Tensors]:
        start, state = w, unmoved(w)
        x, lead = self.lesson(r, w)
        for step, rows in enumerate(passes(len(x), self.batch, self.steps, own(r.key(), self.name))):
            teacher = torch.softmax((r.net(start, x[rows]).logits + lead[rows]) / self.T, 1)
            g = pull(r.net, w, x[rows], lambda logits, p=teacher: self.gap(logits, p))  # type: ignore[misc]
            w, state = adam(w, g, state, cosine(self.eta, step, self.steps))
        return w, {}

    def lesson(self, r: Round, w: Tensor) -> tuple[Tensor, Tensor]:
        """The public inputs, and how far the mean of the clients' logits is ahead of the model's on each of them."""
        inputs, lead = [], []
        for batch in r.public():
            mine = r.net(w, batch.x).logits
            inputs.append(batch.x)
            lead.append(torch.stack([r.net(r.w + delta, batch.x).logits - mine for delta in r.deltas]).mean(0))
        return torch.cat(inputs), torch.cat(lead)

    def gap(self, logits: Tensor, teacher: Tensor) -> Tensor:
        """The derivative of the mean loss of a batch by the student's logits."""
        return self.T * (torch.softmax(logits / self.T, 1) - teacher) / len(logits)
