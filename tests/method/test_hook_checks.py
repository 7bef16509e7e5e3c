"""A mistake inside a hook of a user's part is one line: the part, the hook, what it returned, what was expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from helpers.toys import ENGINES, Bowl, train
from holdfast import Client, HoldfastError, Method, Part, Tensors, Trip
from holdfast.method.hook_checks import checked

every_engine = pytest.mark.parametrize("engine", ENGINES)
LENGTH = "a vector of the model's length, [59]"
NAMES = "return every name that begin and epoch gave it, and no other"
HERE = Path(__file__).name


def bad(**hooks: Callable) -> Part:
    """A part with these hooks."""
    return dataclass(frozen=True)(type("Bad", (Part,), {"name": "toy-bad", **hooks}))()


MISTAKES = {
    "direction: returned None, expected two values: the new direction and the scratch": {
        "direction": lambda self, c, g, w: None
    },
    "direction: returned 3 values, expected two values: the new direction and the scratch": {
        "direction": lambda self, c, g, w: (g, {}, g)
    },
    f"direction: returned a tensor of shape [3] as the direction, expected {LENGTH}": {
        "direction": lambda self, c, g, w: (g[:3], {})
    },
    f"direction: returned a scratch with m, expected nothing: {NAMES}": {
        "direction": lambda self, c, g, w: (g, {"m": g})
    },
    f"direction: returned a scratch with m, expected m, n: {NAMES}": {
        "begin": lambda self, c: {"m": c.zeros(), "n": c.zeros()},
        "direction": lambda self, c, g, w: (g, {"m": g}),
    },
    "direction: returned scratch 'm' with shape [] of float64, expected [59] of float64, as begin and epoch made it": {
        "begin": lambda self, c: {"m": c.zeros()},
        "direction": lambda self, c, g, w: (g, {"m": g.sum()}),
    },
    "begin: returned a tensor of shape [59], expected a dictionary of tensors, empty if there is nothing to keep": {
        "begin": lambda self, c: c.zeros()
    },
    "epoch: returned None as 'm', expected a tensor": {"epoch": lambda self, c, w: {"m": None}},
    f"rate: returned the Python number 0.5, expected a number in a tensor, or {LENGTH}": {"rate": lambda self, c: 0.5},
    "lr: returned a tensor of shape [59], expected a number in a tensor": {"lr": lambda self, c: c.w0},
    "penalty: returned a tensor of shape [5], expected a number in a tensor": {
        "penalty": lambda self, c, out, batch: out.logits[:5].sum(1)[[0, 0, 0, 0, 0]]
    },
    "task_loss: returned None, expected a number in a tensor": {"task_loss": lambda self, c, out, batch: None},
    "teachers: returned the Python number 3 as 'old', expected a tensor": {"teachers": lambda self, c: {"old": 3}},
    f"teachers: returned a number in a tensor as 'old', expected {LENGTH}": {"teachers": lambda self, c: {"old": c.lr}},
    "gradient: returned a tensor of shape [59], expected two values: the gradient and the task loss": {
        "gradient": lambda self, c, grad_fn, w: grad_fn(w)[0]
    },
    "end: returned a state with s, expected nothing: return every name that init_client gave it, and no other": {
        "end": lambda self, c, w, delta: ({"u": delta}, {"s": w})
    },
    "end: returned None as the upload, expected a dictionary of tensors, empty if there is nothing to keep": {
        "end": lambda self, c, w, delta: (None, {})
    },
    f"aggregate: returned a tensor of shape [3, 59], expected {LENGTH}": {"aggregate": lambda self, r: r.deltas},
    f"server_step: returned None, expected {LENGTH}": {"server_step": lambda self, s, r: None},
    "absorb: returned a state with nothing, expected m: return every name that init_server gave it, and no other": {
        "init_server": lambda self, w, N: {"m": torch.zeros_like(w)},
        "absorb": lambda self, s, r: {},
    },
    f"serve: returned None, expected {LENGTH}": {"serve": lambda self, s, w: None},
    "tune: returned a tensor of shape [59], expected two values: the model and the state": {
        "tune": lambda self, s, r, w: w
    },
    "trips: returned 0 values, expected a tuple of Trip": {"trips": lambda self: []},
    "init_client: returned None, expected a dictionary of tensors, empty if there is nothing to keep": {
        "init_client": lambda self, w: None
    },
}


@every_engine
@pytest.mark.parametrize("words", MISTAKES)
def test_what_a_hook_returns(words, engine):
    with pytest.raises(HoldfastError) as error:
        train(bad(**MISTAKES[words]), engine=engine, rounds=1)
    assert str(error.value) == f"part toy-bad, hook {words}"


@dataclass(frozen=True)
class Raises(Part):
    name = "toy-raises"

    def begin(self, c: Client) -> Tensors:
        return {"m": c.zeros()}

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        pairs = zip([g], [1, 2], strict=True)  # the line of the error
        return sum(a * b for a, b in pairs), {}


def line(cls: type, words: str) -> int:
    """The number of the line of this file that holds these words, for the first time in a class."""
    lines = Path(__file__).read_text().splitlines()
    start = next(i for i, text in enumerate(lines) if text.startswith(f"class {cls.__name__}("))
    return next(i for i, text in enumerate(lines[start:], start=start + 1) if words in text)


@every_engine
def test_what_a_hook_raises(engine):
    with pytest.raises(HoldfastError) as error:
        train(Raises(), engine=engine, rounds=1)
    where = f"({HERE}, line {line(Raises, 'return sum(')})"
    assert str(error.value) == (
        "part toy-raises, hook direction: raised ValueError: zip() argument 2 is longer than argument 1 " + where
    )
    assert isinstance(error.value.__cause__, ValueError)


@dataclass(frozen=True)
class Forgets(Part):
    name = "toy-forgets"

    def begin(self, c: Client) -> Tensors:
        return {"m": c.zeros()}

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return g + c.local["momentum"], {}


@every_engine
def test_a_name_that_is_not_there(engine):
    with pytest.raises(HoldfastError) as error:
        train(Forgets(), engine=engine, rounds=1)
    assert str(error.value) == (
        "part toy-forgets, hook direction: there is no 'momentum': c.message has nothing, c.state has nothing, c.local "
        f"has m ({HERE}, line {line(Forgets, 'momentum')})"
    )


UNBATCHED = {
    "it reads a tensor as a number, which differs between clients: compute with tensors": lambda g: g * g.sum().item(),
    "it decides by the value of a tensor, which differs between clients: use torch.where": lambda g: g if g[0] else -g,
    "it uses PyTorch's global random numbers: use those of holdfast.core.rng with c.key()": torch.rand_like,
    "the shape of its result depends on values: use torch.where instead of boolean indexing": lambda g: g[g > 0],
}


@pytest.mark.parametrize("words", UNBATCHED)
def test_what_the_vector_engine_cannot_batch(words):
    with pytest.raises(HoldfastError) as error:
        train(bad(direction=lambda self, c, g, w: (UNBATCHED[words](g), {})), engine="vector", rounds=1)
    assert str(error.value).partition(f" ({HERE}, line ")[0] == f"part toy-bad, hook direction: {words}"


def test_parts_of_a_trip_are_checked_too():
    trip = Trip(
        (bad(direction=lambda self, c, g, w: None),), lambda r: torch.tensor([0]), lambda r: {}, lambda r, rows: {}, 1
    )
    again = dataclass(frozen=True)(type("Again", (Part,), {"name": "toy-again", "trips": lambda self: (trip,)}))()
    with pytest.raises(HoldfastError) as error:
        train(again, rounds=1)
    assert str(error.value) == (
        "part toy-bad, hook direction: returned None, expected two values: the new direction and the scratch"
    )


def test_parts_of_the_library_are_left_as_they_are():
    method = Method.parse("scaffold+fedbug")
    assert checked(method) is method
    mixed = checked(Method.parse("scaffold") + Bowl())
    assert mixed == Method.parse("scaffold") + Bowl()
    assert not vars(mixed.parts[0])
    assert list(vars(mixed.parts[1])) == ["direction"]


@dataclass(frozen=True)
class Weighs(Part):
    """Multiplies the gradient by the loss of the batch."""

    name = "toy-weighs"

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return c.loss * g, {}


@dataclass(frozen=True)
class Scales(Part):
    """Does the same where the gradient is taken."""

    name = "toy-scales"

    def gradient(self, c: Client, grad_fn: Callable, w: Tensor) -> tuple[Tensor, Tensor]:
        g, loss = grad_fn(w)
        return loss * g, loss


@every_engine
def test_direction_sees_the_loss_of_the_batch(engine):
    weighed, scaled, plain = (train(m, engine=engine).after[-1]["w"] for m in (Weighs(), Scales(), "fedavg"))
    assert torch.equal(weighed, scaled)
    assert not torch.allclose(weighed, plain)
