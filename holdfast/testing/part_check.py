"""``check_part``: the laws, on a part that a user has written."""

from __future__ import annotations

import copy
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch._inductor
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.expression import parse
from holdfast.method.method import Method, as_method
from holdfast.method.part import Client, Part, Round
from holdfast.testing import laws
from holdfast.testing.laws import LawBroken
from holdfast.testing.toy_runs import Ran, Still, train

ROUNDS, STOPPED = 3, 1  # of the runs; after which round one of them is stopped and resumed
Law = Callable[["PartCheck"], None]


def check_part(part: Part | Method | str, **settings: Any) -> None:
    """Check that a part keeps the laws that every part of the library keeps.

    It runs the part for a few rounds on a tiny federation of ragged clients, in float64, some ten times; this takes
    seconds. Use it in a test: ``def test_my_part(): check_part(MyPart(0.1))``.

    Args:
        part: The part with its parameters, or a sum that contains it, if it needs others.
        settings: Settings of the runs, such as ``lr=0.1`` or ``public=0.2``.

    Raises:
        LawBroken: If the part breaks a law; it says which one, and how. It is an ``AssertionError``, too.
    """
    method = as_method(part)
    check = PartCheck(method, settings)
    for words, law in LAWS.items():
        try:
            law(check)
        except HoldfastError as error:
            raise LawBroken(f"{method} breaks the law that {words}: {error}") from error


class PartCheck:
    """The runs of one part that several laws look at."""

    def __init__(self, method: Method, settings: Mapping[str, Any]) -> None:
        self.method, self.settings = method, {"rounds": ROUNDS, **settings}
        self.whole: dict[str, Ran] = {}

    def run(self, method: Method | None = None, **more: Any) -> Ran:
        """Train with other settings."""
        return train(self.method if method is None else method, **{**self.settings, **more})

    def once(self, engine: str) -> Ran:
        """Return the run of an engine."""
        if engine not in self.whole:
            self.whole[engine] = self.run(engine=engine)
        return self.whole[engine]


# -- the laws --------------------------------------------------------------------------------------------------------
def inputs_stay(check: PartCheck) -> None:
    method = Method(tuple(watched(part) for part in check.method.parts))
    check.run(method, engine="loop")


def fixed_shapes(check: PartCheck) -> None:
    laws.assert_fixed_shapes(check.once("loop"))


def loop_is_vector(check: PartCheck) -> None:
    laws.assert_agree(check.once("loop"), check.once("vector"))
    steps: dict[str, Any] = {"steps": 5, "rounds": 2}
    laws.assert_agree(check.run(engine="loop", **steps), check.run(engine="vector", **steps))


def traced_is_loop(check: PartCheck) -> None:
    chance: dict[str, Any] = {"cohort": None, "participation": 0.6, "rounds": 2}
    with mock.patch.object(torch._inductor, "compile", lambda traced, inputs, **_: traced):
        traced = check.run(engine="vector", compile=True, **chance)
    laws.assert_agree(check.run(engine="loop", **chance), traced, ("loop", "the traced step"))


def nobody_moves(check: PartCheck) -> None:
    if check.method.filling("trips"):  # clients that go out again move in any case
        laws.assert_unmoved(check.run(engine="loop", rounds=1, lr=1e-300), served_too=False)
        return
    ran = check.run(Method((Still(), *check.method.parts)), engine="loop", rounds=1)
    laws.assert_unmoved(ran, served_too=not check.method.filling("survey"))


def resuming(check: PartCheck) -> None:
    whole = check.once("loop")
    left = iter(range(1, ROUNDS + 1))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        check.run(engine="loop", out=out, stop=lambda: next(left) == STOPPED)
        laws.assert_continues(whole, check.run(engine="loop", out=out, resume=True), STOPPED)


def no_hidden_randomness(check: PartCheck) -> None:
    with other_random_numbers():
        again = check.run(engine="loop")
    laws.assert_repeats(check.once("loop"), again)


def neutral_is_fedavg(check: PartCheck) -> None:
    for part in check.method.parts:
        for text in laws.neutral_texts([type(part)]):
            (call,) = parse(text)
            neutral = Method((type(part)(**call.kwargs),))
            plain = check.run(Method(), engine="loop")
            laws.assert_changes_nothing(check.run(neutral, engine="loop"), plain)


LAWS: dict[str, Law] = {
    "hooks do not change what they are given": inputs_stay,
    "states keep their names and shapes": fixed_shapes,
    "random numbers come from c.key() alone": no_hidden_randomness,
    "the loop and vector engines agree": loop_is_vector,
    "a traced step agrees with the loop": traced_is_loop,
    "if no client moves, the model does not move": nobody_moves,
    "resuming changes nothing": resuming,
    'at the value of which its documentation says "is FedAvg", a part is FedAvg': neutral_is_fedavg,
}


# -- hooks that are watched ------------------------------------------------------------------------------------------
def watched(part: Part) -> Part:
    """Return an equal part whose hooks may not change what they are given."""
    twin = copy.copy(part)
    for hook in part.hooks():
        object.__setattr__(twin, hook, _watched_hook(part, hook))
    return twin


def _watched_hook(part: Part, hook: str) -> Callable[..., Any]:
    function = getattr(part, hook)

    @wraps(function)
    def call(*args: Any) -> Any:
        held = list(_tensors(args))
        before = [(name, tensor, tensor._version) for name, tensor in held]
        found = function(*args)
        for name, tensor, version in before:
            if tensor._version != version:
                raise LawBroken(f"part {part.name}, hook {hook}: changes {name} in place; return a new tensor instead")
        return found

    return call


def _tensors(args: tuple[Any, ...]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors among the arguments of a hook, with what to call them."""
    for arg in args:
        if isinstance(arg, Client):
            yield "c.w0", arg.w0
            groups = {"c.message": arg.message, "c.state": arg.state, "c.local": arg.local}
            yield from ((f"{group}[{name!r}]", t) for group, held in groups.items() for name, t in held.items())
        elif isinstance(arg, Round):
            yield from (("r.w", arg.w), ("r.deltas", arg.deltas), ("r.update", arg.update))
            yield from ((f"r.uploads[{name!r}]", t) for name, t in arg.uploads.items())
        elif isinstance(arg, dict):
            yield from ((f"s[{name!r}]", t) for name, t in arg.items())
        elif isinstance(arg, Tensor):
            yield "a vector that it is given", arg


@contextmanager
def other_random_numbers() -> Iterator[None]:
    """Set every global generator to another state, and restore it at the end."""
    python, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(20_011)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(arrays)
