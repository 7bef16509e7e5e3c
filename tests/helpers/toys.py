"""Tiny federations, models and parts: small enough to compute by hand. ``train`` and the ragged federation are those
of ``holdfast.testing``, with which users check parts of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from holdfast import Batch, Client, DataSet, Federation, Out, Part, Round, Tensors, Trip, federate, param
from holdfast.testing.laws import assert_close as assert_close
from holdfast.testing.laws import assert_same as assert_same
from holdfast.testing.toy_runs import SETTINGS as SETTINGS
from holdfast.testing.toy_runs import Ran, ragged_with_empty_client, train
from holdfast.testing.toy_runs import Still as Still
from holdfast.testing.toy_runs import known as known
from holdfast.testing.toy_runs import ragged as ragged
from holdfast.testing.toy_runs import smooth_network as mlp  # noqa: F401
from holdfast.testing.toy_runs import with_empty_client as with_empty_client

ENGINES = ("loop", "vector")
FEDERATION = ragged_with_empty_client()


# -- a model of one number -------------------------------------------------------------------------------------------
def points(*clients: tuple[float, int]) -> Federation:
    """Clients as (target, samples): every sample of a client is its target."""
    x = torch.tensor([[target] for target, n in clients for _ in range(n)], dtype=torch.float64)
    groups = torch.tensor([i for i, (_, n) in enumerate(clients) for _ in range(n)])
    y = torch.zeros(len(x), dtype=torch.int64)
    return federate(DataSet("points", x, y, x, y, ("only",), groups=groups), "given", clients=len(clients))


class Number(nn.Module):
    """A model whose one parameter is its output."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.head = nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.head.weight, start)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.ones_like(x))


@dataclass(frozen=True)
class Quadratic(Part):
    """The loss ``(w - target)^2 / 2`` for the model of one number: its gradient is ``w - target``."""

    name = "toy-quadratic"

    def task_loss(self, c: Client, out: Out, batch: Batch) -> Tensor:
        return batch.mean((out.logits - batch.x).squeeze(1) ** 2 / 2)


def quadratic(sum: Part | None, *clients: tuple[float, int], start: float = 0.0, **settings: Any) -> Ran:
    """A run on the model of one number, by default with everyone, batches of one sample and learning rate 1/2."""
    federation = points(*clients)
    defaults = {"lr": 0.5, "batch": 1, "epochs": 1, "rounds": 1, "cohort": len(clients)}
    method = Quadratic() if sum is None else Quadratic() + sum
    return train(method, federation, Number(start), **(defaults | settings))


@dataclass(frozen=True)
class Bowl(Part):
    """The gradient ``w - 4*id`` in every coordinate of any model, whatever the data."""

    name = "toy-bowl"

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return w - 4.0 * c.id, {}


# -- parts that fill hooks which few others fill ---------------------------------------------------------------------
@dataclass(frozen=True)
class Anchor(Part):
    """Pulls towards the model at the start of the epoch."""

    name = "toy-anchor"

    def epoch(self, c: Client, w: Tensor) -> Tensors:
        return {"anchor": w.clone()}

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return g + (w - c.local["anchor"]), c.local


@dataclass(frozen=True)
class Keeper(Part):
    """Keeps the models of the last two steps as it got them, without a copy."""

    name = "toy-keeper"

    def epoch(self, c: Client, w: Tensor) -> Tensors:
        return {"last": w, "before": w}

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        drawn = 0.5 * (w - c.local["last"]) + 0.25 * (w - c.local["before"])
        return g + drawn, {"last": w, "before": c.local["last"]}


@dataclass(frozen=True)
class Halving(Part):
    """An absolute learning rate: 1/2 for client 0, 1/4 for client 1, ...; halved again in every later epoch."""

    name = "toy-halving"

    def lr(self, c: Client) -> Tensor:
        return torch.ones_like(c.lr) * 0.5 ** (1 + c.id + c.epoch)


@dataclass(frozen=True)
class Progress(Part):
    """Steps that grow in the course of the local training, up to the full learning rate."""

    name = "toy-progress"

    def rate(self, c: Client) -> Tensor:
        return c.k.to(c.lr.dtype) / c.K


@dataclass(frozen=True)
class Poison(Part):
    """Client 1 returns NaN."""

    name = "toy-poison"

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return torch.where(c.id == 1, float("nan"), g), {}


@dataclass(frozen=True)
class Goal(Part):
    """The loss ``(w - goal)^2 / 2`` for the model of one number; the server sends the goal."""

    name = "toy-goal"

    def task_loss(self, c: Client, out: Out, batch: Batch) -> Tensor:
        return batch.mean((out.logits - c.message["goal"]).squeeze(1) ** 2 / 2)


@dataclass(frozen=True)
class Refine(Part):
    """Sends the clients with the most samples out again, towards the goal 8."""

    name = "toy-refine"

    clients: int = param(1, "how many train again", low=0)
    epochs: int = param(1, "for how long", low=0)
    public: bool = param(False, "on the public data")
    growing: bool = param(False, "with steps that grow")

    def trips(self) -> tuple[Trip, ...]:
        return (
            Trip(
                sum=(Goal(), Progress()) if self.growing else (Goal(),),
                who=lambda r: torch.argsort(r.n, descending=True, stable=True)[: self.clients],
                message=lambda r: {"goal": r.deltas.new_tensor(8.0)},
                state=lambda r, rows: {},
                epochs=self.epochs,
                public=self.public,
            ),
        )


def server_round(deltas: list[list[float]], n: list[int], K: list[int], weights: list[float]) -> Round:
    """What the server sees when clients return these deltas from a model of zeros."""
    rows = torch.tensor(deltas, dtype=torch.float64)
    return Round(
        w=torch.zeros_like(rows[0]), deltas=rows, ids=torch.arange(len(rows)), n=torch.tensor(n), K=torch.tensor(K),
        weights=torch.tensor(weights, dtype=torch.float64), lr=torch.tensor(0.5, dtype=torch.float64), server_lr=1.0,
        N=len(rows), net=None,
    )  # fmt: skip
