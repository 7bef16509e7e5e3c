"""Steps of all clients without vmap: for which sums, that they are the loop's, and in how many threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.toys import mlp, ragged, train
from holdfast import Client, Method, Part, Tensors
from holdfast.engines import lifted_step, thread_groups
from holdfast.engines.lifted_step import NotVectorAlgebra, VectorAlgebra
from holdfast.engines.vector import Vector
from holdfast.method import hook_checks
from holdfast.method.config import Config
from holdfast.runs.setup import prepare_simulation
from holdfast.testing.laws import assert_agree


@pytest.fixture(autouse=True)
def _toys_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take toys for parts of the library: those of users always run under vmap, where their hooks are checked."""
    for room in (lifted_step, hook_checks):
        monkeypatch.setattr(room, "is_library", lambda part: not isinstance(part, Users))


@dataclass(frozen=True)
class Sorting(Part):
    """Moves along the sorted gradient, which is no vector algebra."""

    name = "toy-sorting"

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return torch.sort(g).values, {}


@dataclass(frozen=True)
class Users(Part):
    """Vector algebra that a user has written."""

    name = "toy-users"

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        assert g.shape == c.w0.shape
        return 0.5 * g, {}


@dataclass(frozen=True)
class Later(Part):
    """Scales in the first round, and flips the gradient in later ones."""

    name = "toy-later"

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return 0.5 * g if int(c.round) == 1 else g.flip(0), {}


@dataclass(frozen=True)
class Counting(Part):
    """Counts steps, in numbers and in vectors, and uses lengths and sums of vectors."""

    name = "toy-counting"

    def begin(self, c: Client) -> Tensors:
        return {"number": torch.zeros_like(c.lr), "vector": c.zeros()}

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        number = c.local["number"] + c.k / c.K.to(g.dtype)
        vector = c.local["vector"] + torch.where(g > 0, number, 1.0)
        shrunk = g / (1 + torch.linalg.vector_norm(g) + g.sum().abs() + c.loss)
        return shrunk + 0.01 * vector, {"vector": vector, "number": number}


def steps(method: str | Part) -> Any:
    """Return how an engine takes the steps of a method after two rounds."""
    sum = Method.parse(method) if isinstance(method, str) else Method((method,))
    simulation = prepare_simulation(Config(clients=4, cohort=3, engine="vector", device="cpu"), sum, ragged(), mlp())
    engine = simulation.engines[0]
    assert isinstance(engine, Vector)
    for t in (1, 2):
        simulation.play(t)
    return engine._steps


@pytest.mark.parametrize(
    ("method", "lifted"),
    [
        ("prox", True),
        ("scaffold+clip(1)+momentum", True),
        ("feddyn+adam", True),
        ("fedcm+decay(0.1)", True),
        (Counting(), True),
        ("fedbug", False),
        ("fednlr", False),
        (Sorting(), False),
        (Later(), False),
        (Users(), False),
    ],
    ids=str,
)
def test_which_sums_are_vector_algebra(method: str | Part, lifted: bool) -> None:
    found = steps(method)
    assert (found.step.lifted.possible, found.parallel()) == (lifted, lifted)


@pytest.mark.parametrize("part", [Sorting(), Later(), Counting()], ids=lambda part: part.name)
def test_every_part_does_the_same_as_in_the_loop(part: Part) -> None:
    settings: dict[str, Any] = {"model": mlp(), "rounds": 3}
    assert_agree(train(part, engine="loop", **settings), train(part, engine="vector", **settings))


@pytest.mark.parametrize("method", ["fedavg", "scaffold+clip(1)+momentum", "fedbug", "nova+toy-later"])
def test_threads_change_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client is on its own, so that the models are the same bit by bit."""
    monkeypatch.setattr(thread_groups, "ENOUGH", 1)
    settings: dict[str, Any] = {"model": mlp(), "rounds": 3, "engine": "vector"}
    one, three = (train(method, workers=workers, **settings) for workers in (1, 3))
    for before, after in zip(one.after, three.after, strict=True):
        torch.testing.assert_close(after, before, rtol=0, atol=0)


@pytest.mark.parametrize(
    "operation",
    [
        lambda t: t.add_(1),
        lambda t: t.sum(0),
        lambda t: t.max(),
        lambda t: t[0],
        lambda t: t.reshape(-1),
        lambda t: torch.where(t > 0),
        float,
        bool,
        len,
        lambda t: t.shape,
        lambda t: torch.linalg.vector_norm(t, ord=1),
        lambda t: torch.cumsum(t, 0),
        lambda t: t @ t.T,
    ],
)
def test_what_is_not_vector_algebra(operation: Any) -> None:
    numbers = torch.ones(1, 1)
    with pytest.raises(NotVectorAlgebra), VectorAlgebra():
        operation(numbers)
    assert torch.equal(numbers, torch.ones(1, 1))


def test_groups_have_all_rows_and_are_not_too_small() -> None:
    groups = thread_groups.ThreadGroups(3)
    for clients, products, expected in ((7, 2**20, 3), (2, 2**20, 2), (7, 2**18, 1), (8, 2**18, 2), (1, 1, 1)):
        seen: list[slice] = []
        groups.each(seen.append, clients, products)
        assert len(seen) == expected
        assert sorted(i for rows in seen for i in range(clients)[rows]) == list(range(clients))
