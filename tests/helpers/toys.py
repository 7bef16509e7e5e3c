"""Tiny federations, models and parts: small enough to compute by hand.

``train`` runs a method in float64 and keeps, after every round, everything the run knows: the global model ``w``, the
model it would serve, every part's state at the server (``scaffold/c``) and at each client (``3/scaffold/c``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from holdfast import Batch, Client, DataSet, Federation, Method, Out, Part, Round, Tensors, Trip, federate, param, run
from holdfast.data.splits import Deal
from holdfast.training.round_record import RoundRecord
from holdfast.training.simulation import Simulation

ENGINES = ("loop", "vector")
SETTINGS = {"precision": "fp64", "lr": 0.3, "batch": 5, "epochs": 2, "rounds": 3, "cohort": 3}


# -- runs ------------------------------------------------------------------------------------------------------------
class Ran(NamedTuple):
    history: list[RoundRecord]
    after: list[Tensors]  # what the run knows after round 0, 1, 2, ...


def train(
    sum: str | Part | Method, federation: Federation | None = None, model: nn.Module | None = None, **settings: Any
) -> Ran:
    """Run a method on the ragged federation, or on another; ``settings`` go to ``run``."""
    after: list[Tensors] = []
    simulations: list[Simulation] = []

    def start(simulation: Simulation, done: int) -> None:
        simulations.append(simulation)
        after.append(known(simulation))

    result = run(
        sum, federation or FEDERATION, model or mlp(), on_start=start,
        on_round=lambda record: after.append(known(simulations[0])), **settled(settings),
    )  # fmt: skip
    return Ran(result.history, after)


def settled(settings: dict[str, Any]) -> dict[str, Any]:
    """The default settings with some replaced; local steps replace epochs."""
    chosen = SETTINGS | settings
    return {k: v for k, v in chosen.items() if k != "epochs" or chosen.get("steps") is None}


def known(simulation: Simulation) -> Tensors:
    """Everything that the next round may depend on, by name."""
    server = simulation.server
    found = {"w": server.w, "served": server.served()}
    found |= {f"{part}/{k}": t for part, state in server.states.items() for k, t in state.items()}
    for client, row in simulation.clients.rows.items():
        found |= {f"{client}/{part}/{k}": t for part, state in row.items() for k, t in state.items()}
    return {name: t.clone() for name, t in found.items()}


def assert_same(found: Tensors, expected: Tensors) -> None:
    """Equal bit for bit."""
    assert found.keys() == expected.keys()
    for name, t in expected.items():
        assert torch.equal(found[name], t), name


def assert_close(found: Tensors, expected: Tensors, relative: float) -> None:
    """Equal up to ``relative``, measured against the largest entry of each tensor."""
    assert found.keys() == expected.keys()
    for name, t in expected.items():
        assert torch.isfinite(t).all(), name
        assert float((found[name] - t).abs().max()) <= relative * float(t.abs().max()), name


# -- a ragged federation and a network of three layers ---------------------------------------------------------------
def ragged(names: tuple[int, ...] = (0, 1, 2, 3)) -> Federation:
    """Four clients, called ``names``, of 4, 7, 12 and 19 samples, beside public data; one lacks a class."""
    g = torch.Generator().manual_seed(1)
    groups = torch.repeat_interleave(torch.arange(4), torch.tensor([4, 9, 15, 25]))
    x = torch.randn(len(groups), 3, generator=g, dtype=torch.float64) + 0.3 * groups[:, None]
    y = (x @ torch.randn(3, 3, generator=g, dtype=torch.float64)).argmax(1)
    y = torch.where(groups == 0, y % 2, (y + groups) % 3)  # clients disagree
    data = DataSet("ragged", x, y, x[::3], y[::3], ("a", "b", "c"), groups=torch.tensor(names)[groups])
    return federate(data, "given", clients=4, public=0.2)


def with_empty_client(federation: Federation, at: int) -> Federation:
    """The same federation with a client ``at`` that has no samples."""
    deal = federation.deal
    return replace(federation, deal=Deal(deal.index, np.insert(deal.offsets, at, deal.offsets[at])))


FEDERATION = with_empty_client(ragged(), at=2)


def mlp() -> nn.Module:
    """Three layers; smooth, so that rounding cannot flip a unit."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()


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
class Still(Part):
    """No client moves after some rounds."""

    name = "toy-still"

    after: int = param(0, "rounds in which all clients still move", low=0)

    def rate(self, c: Client) -> Tensor:
        return (c.round <= self.after).to(c.lr.dtype)


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
