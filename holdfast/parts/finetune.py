"""Fine-tuning: train the global model on public data at the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.method.part import Part, Round, Tensors
from holdfast.parts._distillation import gradient_from_logits, minibatches, part_key

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.method.config import Config
    from holdfast.method.method import Method
    from holdfast.models.net import Net


@dataclass(frozen=True)
class Finetune(Part):
    """Plain SGD on labelled public data, at the server, at the round's local learning rate:

        w  <-  w - lr * gradient(cross-entropy on a public batch),    for ``epochs`` passes

    ``when=last``, the default: after the last round alone. A round in which no client moved is left alone. This is the
    control for methods that train on public data (``fnr``): what the same images give without them. As with ``fnr``,
    public data that is the test data is refused unless ``allow_test_leak=true``, and the run is then marked as leaking.
    """

    name = "finetune"
    paper = "Zhao et al. 2018, Federated Learning with Non-IID Data"
    summary = "Trains on public data at the server"
    accepts_test_data = True

    epochs: int = param(5, "passes over the public data; 0 is FedAvg", low=0)
    batch: int = param(64, "public samples per step", low=1)
    when: str = param("last", "after which rounds: the last one, or every one", choices=("last", "every"))
    allow_test_leak: bool = param(False, "admit the test data as public data; the run is marked as leaking")

    @property
    def needs(self) -> tuple[str, ...]:
        return ("classes",)

    def check(self, method: Method, config: Config, net: Net, federation: Federation) -> None:
        if len(federation.public) == 0:
            raise HoldfastError(
                "finetune needs public data: hold some out with --public 0.05 or federate(..., public=0.05)"
            )
        if federation.leaks and not self.allow_test_leak:
            raise HoldfastError(
                "finetune: the public data is the test data, which makes test accuracy meaningless; hold out training "
                "data instead with --public 0.05, or set allow_test_leak=true"
            )

    def tune(self, s: Tensors, r: Round, w: Tensor) -> tuple[Tensor, Tensors]:
        if (self.when == "last" and r.round < r.rounds) or not r.update.any():
            return w, {}
        batches = list(r.public())
        x = tree_map(lambda *parts: torch.cat(parts), *(batch.x for batch in batches))
        y = torch.cat([batch.y for batch in batches])
        steps = self.epochs * -(-len(y) // self.batch)
        for rows in minibatches(len(y), self.batch, steps, part_key(r.key(), self.name)):
            chosen, label = tree_map(lambda t, rows=rows: t[rows], x), y[rows]
            w = w - r.lr * gradient_from_logits(r.net, w, chosen, lambda logits, y=label: gap(logits, y))  # type: ignore[misc]
        return w, {}


def gap(logits: Tensor, y: Tensor) -> Tensor:
    """Return the derivative of a batch's mean cross-entropy with respect to the logits."""
    return (torch.softmax(logits, 1) - torch.nn.functional.one_hot(y, logits.shape[1])) / len(y)
