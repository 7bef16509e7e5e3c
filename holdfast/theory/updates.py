"""FedMRUR's aggregation: the deltas and updates of rounds on the digits, and of random cohorts."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from holdfast.method.config import Config
from holdfast.method.method import Method
from holdfast.method.part import Round
from holdfast.models.net import Net
from holdfast.parts.normalized import Normalized
from holdfast.runs.setup import prepare_simulation
from holdfast.theory.recorder import Recorder, recorded
from holdfast.training.evaluation import evaluate
from holdfast.training.round import Trainer

ROUNDS, COHORT = 30, 10
METHODS = ("fedavg", "fedmrur")
SETTINGS = {
    "data": "digits", "split": "dirichlet(0.1)", "cohort": COHORT, "model": "mlp(width=50, depth=1)", "epochs": 2,
    "device": "cpu",
}  # fmt: skip


def stretch(deltas: Tensor) -> Tensor:
    """Return d = sum_i ||delta_i|| / ||sum_i delta_i|| (Theorem 1); clients are the last but one axis.

    >>> stretch(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(1.4000)
    """
    lengths, whole = torch.linalg.vector_norm(deltas, dim=-1), torch.linalg.vector_norm(deltas.sum(-2), dim=-1)
    d: Tensor = lengths.sum(-1) / whole
    return d


class UpdateRounds(NamedTuple):
    """The deltas and updates of a run, round by round."""

    deltas: Tensor  # [round, client, P]
    updates: Tensor  # [round, P]


def simulation(method: str) -> Trainer:
    """Return a run on the digits that records what the clients do."""
    return prepare_simulation(Config().changed(**SETTINGS), Method.parse(method) + Recorder(), None, None)


@cache
def played(method: str, rounds: int = ROUNDS) -> UpdateRounds:
    """Train on the digits, and return every round's deltas and update."""
    run, deltas, updates = simulation(method), [], []
    for t in range(1, rounds + 1):
        run.play(t)
        deltas.append(recorded(run)["deltas"].double())
        updates.append(recorded(run)["update"].double())
    return UpdateRounds(torch.stack(deltas), torch.stack(updates))


def aggregated(deltas: Tensor) -> Tensor:
    """Return the update that ``normalized`` makes of some deltas, [client, P]."""
    clients, net = len(deltas), Net(nn.Linear(2, 2), (2,), 2)  # the aggregate uses neither net nor counts
    one, ids = torch.ones(clients, dtype=torch.int64), torch.arange(clients)
    weights = torch.full((clients,), 1 / clients, dtype=deltas.dtype)
    r = Round(deltas[0], deltas, ids, one, one, weights, torch.tensor(0.1), 1.0, clients, net)
    return Normalized().aggregate(r)


def random_deltas(cohorts: int = 2000, clients: int = 10, size: int = 30) -> Tensor:
    """Return cohorts of vectors, from almost parallel to random directions.

    Args:
        cohorts: How many.
        clients: Vectors per cohort.
        size: Their dimension.

    Returns:
        The vectors, [cohort, client, dimension].
    """
    rng = torch.Generator().manual_seed(0)
    common = torch.randn(cohorts, 1, size, generator=rng, dtype=torch.float64)
    own = torch.randn(cohorts, clients, size, generator=rng, dtype=torch.float64)
    spread = torch.logspace(-4, 2, cohorts, dtype=torch.float64)[:, None, None]
    return common + spread * own


def signs() -> tuple[float, float, float]:
    """Return the test loss at the first model, after w + update, and after w - update as Alg. 1 line 16 prints it."""
    run = simulation("normalized")
    w = run.server.w
    run.play(1)
    update = recorded(run)["update"]
    here, forth, back = (evaluate(run.net, at, run.federation).loss for at in (w, w + update, w - update))
    return here, forth, back


def length_error(run: UpdateRounds) -> float:
    """Return the largest relative difference between the length of an update and the mean length of its deltas."""
    mean = torch.linalg.vector_norm(run.deltas, dim=2).mean(1)
    return float((torch.linalg.vector_norm(run.updates, dim=1) / mean - 1).abs().max())


def turn(run: UpdateRounds) -> float:
    """Return the largest 1 - cosine between an update and the mean of its deltas."""
    return float((1 - torch.cosine_similarity(run.updates, run.deltas.mean(1), dim=1)).abs().max())
