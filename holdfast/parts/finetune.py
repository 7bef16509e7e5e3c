"""Fine-tuning on public data: what labelled public data is worth by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.core import rng
from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.method.part import Batch, Client, Part, Round, Tensors, Trip
from holdfast.parts._distillation import minibatches, part_key
from holdfast.parts._public_data import require_public_data

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.method.config import Config
    from holdfast.method.method import Method
    from holdfast.models.net import Net


@dataclass(frozen=True)
class FineTune(Part):
    """Plain training on the labelled public data, as a control for methods that use it (FNR-FL):

        w  <-  w - eta * gradient(loss on a batch of public samples),    ``epochs`` passes in every round

    ``at=clients``: every client of the cohort trains so after its local training, from its own model, with the local
    optimiser of the sum; its refined delta replaces the first one. This is ``fnr`` without a choice of clients and
    without its penalty. ``at=server``: the server trains the averaged model after its step, by SGD with ``momentum``,
    as in "FedAvg, then fine-tuned on the public data". The model then moves in every round, even if no client does.
    """

    name = "finetune"
    paper = "McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data"
    summary = "Trains on public data in every round"
    server_reads = "update"
    accepts_test_data = True

    epochs: int = param(5, "passes over the public data in every round", low=1, search=(1, 10, "log"))
    at: str = param("clients", "who trains on the public data", choices=("clients", "server"))
    batch: int = param(64, "public samples per step", low=1, search=(16, 128, "log"))
    shuffled: bool = param(True, "take the public samples in a new order in every pass")
    eta: float | None = param(
        None,
        "at=server: learning rate; none: that of the round",
        above=0,
        search="by default it is lr, which is searched",
    )
    momentum: float = param(0.0, "at=server: momentum of SGD", low=0, below=1, search=(0, 0.95))
    allow_test_leak: bool = param(False, "admit the test data as public data; the run is marked as leaking")

    @property
    def unused(self) -> tuple[str, ...]:
        return ("tune",) if self.at == "clients" else ("trips",)

    def check(self, method: Method, config: Config, net: Net, federation: Federation) -> None:
        require_public_data(self.name, federation, self.allow_test_leak)
        if self.at == "clients" and (self.eta is not None or self.momentum):
            raise HoldfastError(
                "finetune: eta and momentum are the server's, and at=clients trains with the run's lr and the local "
                "optimiser of the sum; leave them out, or use at=server"
            )

    def trips(self) -> tuple[Trip, ...]:
        return (
            Trip(
                sum=(PublicTask(),), who=lambda r: torch.arange(len(r.ids), device=r.w.device), message=lambda r: {},
                state=lambda r, rows: {}, epochs=self.epochs, public=True, batch=self.batch, shuffled=self.shuffled,
            ),
        )  # fmt: skip

    def tune(self, s: Tensors, r: Round, w: Tensor) -> tuple[Tensor, Tensors]:
        data, key = joined(list(r.public())), part_key(r.key(), self.name)
        eta, speed = r.lr if self.eta is None else self.eta, torch.zeros_like(w)
        steps = self.epochs * -(-len(data.y) // self.batch)
        for step, rows in enumerate(minibatches(len(data.y), self.batch, steps, key, self.shuffled)):
            speed = self.momentum * speed + gradient(r.net, w, chosen(data, rows), rng.key(key, step))
            w = w - eta * speed
        return w, {}


@dataclass(frozen=True)
class PublicTask(Part):
    """The second trip of the clients: nothing but the task's own loss."""

    name = "public-task"
    internal = True

    def begin(self, c: Client) -> Tensors:
        return {}


def joined(batches: list[Batch]) -> Batch:
    """Join batches without padding into one."""
    x = tree_map(lambda *parts: torch.cat(parts), *(batch.x for batch in batches))
    return replace(
        batches[0], x=x, y=torch.cat([b.y for b in batches]), mask=torch.cat([b.mask for b in batches]), padded=False
    )


def chosen(batch: Batch, rows: Tensor) -> Batch:
    """Return some rows of a batch."""
    return replace(batch, x=tree_map(lambda t: t[rows], batch.x), y=batch.y[rows], mask=batch.mask[rows])


def gradient(net: Net, w: Tensor, batch: Batch, key: Tensor) -> Tensor:
    """Return the gradient of a batch's loss, as in training.

    Args:
        net: The network.
        w: The model.
        batch: The samples.
        key: The key of dropout.

    Returns:
        The gradient with respect to the model.
    """
    g: Tensor = torch.func.grad(lambda v: batch.loss(net.training_pass(v, batch.x, None, key)[0].logits))(w)
    return g
