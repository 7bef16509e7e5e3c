"""Runs small enough for many of them: a ragged federation, a smooth network, float64.

``train`` keeps, after every round, everything the run knows: the global model ``w``, the model it would serve, every
part's state at the server (``scaffold/c``) and at each client (``3/scaffold/c``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.core.params import param
from holdfast.core.tensors import Tensors
from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation, federate
from holdfast.data.splits import Deal
from holdfast.method.method import Method
from holdfast.method.part import Client, Part
from holdfast.runs.run import run
from holdfast.training.round import Trainer
from holdfast.training.round_record import RoundRecord

SETTINGS = {"precision": "fp64", "lr": 0.3, "batch": 5, "epochs": 2, "rounds": 3, "cohort": 3}


class Ran(NamedTuple):
    """What a run left behind."""

    history: list[RoundRecord]
    after: list[Tensors]  # what the run knows after round 0, 1, 2, ...


def train(
    sum: str | Part | Method, federation: Federation | None = None, model: nn.Module | None = None, **settings: Any
) -> Ran:
    """Run a method on the ragged federation, or on another.

    Args:
        sum: The method.
        federation: The federation; by default the ragged one.
        model: The model; by default ``smooth_network()``.
        settings: Those of ``run``, added to ``SETTINGS``.

    Returns:
        The history, and all that the run knew after each round.
    """
    after: list[Tensors] = []
    trainers: list[Trainer] = []

    def start(trainer: Trainer, done: int) -> None:
        trainers.append(trainer)
        after.append(known(trainer))

    result = run(
        sum, federation or ragged_with_empty_client(), model or smooth_network(), on_start=start,
        on_round=lambda record: after.append(known(trainers[0])), **settled(settings),
    )  # fmt: skip
    return Ran(result.history, after)


def settled(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the default settings with some replaced; local steps replace epochs."""
    chosen = SETTINGS | settings
    return {k: v for k, v in chosen.items() if k != "epochs" or chosen.get("steps") is None}


def known(trainer: Trainer) -> Tensors:
    """Return everything that the next round may depend on, by name."""
    server = trainer.server
    found = {"w": server.w, "served": server.served()}
    found |= {f"{part}/{k}": t for part, state in server.states.items() for k, t in state.items()}
    for client, row in trainer.clients.rows.items():
        found |= {f"{client}/{part}/{k}": t for part, state in row.items() for k, t in state.items()}
    return {name: t.clone() for name, t in found.items()}


def ragged(names: tuple[int, ...] = (0, 1, 2, 3)) -> Federation:
    """Make four clients, called ``names``, of 4, 7, 12 and 19 samples, beside public data; one lacks a class."""
    g = torch.Generator().manual_seed(1)
    groups = torch.repeat_interleave(torch.arange(4), torch.tensor([4, 9, 15, 25]))
    x = torch.randn(len(groups), 3, generator=g, dtype=torch.float64) + 0.3 * groups[:, None]
    y = (x @ torch.randn(3, 3, generator=g, dtype=torch.float64)).argmax(1)
    y = torch.where(groups == 0, y % 2, (y + groups) % 3)  # clients disagree
    data = DataSet("ragged", x, y, x[::3], y[::3], ("a", "b", "c"), groups=torch.tensor(names)[groups])
    return federate(data, "given", clients=4, public=0.2)


def with_empty_client(federation: Federation, at: int) -> Federation:
    """Return the same federation with a client ``at`` that has no samples."""
    deal = federation.deal
    return replace(federation, deal=Deal(deal.index, np.insert(deal.offsets, at, deal.offsets[at])))


@cache
def ragged_with_empty_client() -> Federation:
    """Return the ragged federation with a third client that has no samples."""
    return with_empty_client(ragged(), at=2)


def smooth_network() -> nn.Module:
    """Make three layers; smooth, so that rounding cannot flip a unit."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()


@dataclass(frozen=True)
class Still(Part):
    """No client moves after some rounds."""

    name = "toy-still"
    internal: ClassVar[bool] = True

    after: int = param(0, "rounds in which all clients still move", low=0)

    def rate(self, c: Client) -> Tensor:
        return (c.round <= self.after).to(c.lr.dtype)
