"""Laws that hold for every part: what two runs must have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch

from holdfast.core.errors import HoldfastError
from holdfast.core.tensors import Tensors
from holdfast.method.part import Part
from holdfast.testing.toy_runs import Ran

ROUNDING = 1e-10  # how far two ways of computing the same in float64 may differ, relative to the largest entry
NEUTRAL = re.compile(r"(?:^|; )(\S+) is FedAvg")  # how a parameter's meaning states the value that changes nothing


class LawBroken(HoldfastError, AssertionError):
    """A part breaks a law."""


def assert_same(found: Tensors, expected: Tensors, where: str = "the run") -> None:
    """Raise an error unless two runs know the same, bit for bit."""
    _assert_named(found, expected, where)
    for name, t in expected.items():
        if found[name].shape != t.shape or not torch.equal(found[name], t):
            raise LawBroken(f"{where}: {name} is not the same, bit for bit")


def assert_close(found: Tensors, expected: Tensors, relative: float, where: str = "the run") -> None:
    """Raise an error unless two runs know the same.

    Args:
        found: What one run knows.
        expected: What the other knows.
        relative: How far they may differ, measured against the largest entry of each tensor.
        where: What differs, to begin the error with.
    """
    _assert_named(found, expected, where)
    for name, t in expected.items():
        if not torch.isfinite(t).all():
            raise LawBroken(f"{where}: {name} is not finite")
        if found[name].shape != t.shape:
            raise LawBroken(f"{where}: {name} has shape {list(found[name].shape)}, not {list(t.shape)}")
        difference, largest = (float(d.abs().max()) if d.numel() else 0.0 for d in (found[name] - t, t))
        if not difference <= relative * largest:
            raise LawBroken(f"{where}: {name} differs by {difference:.2g}, where its largest entry is {largest:.2g}")


def _assert_named(found: Tensors, expected: Tensors, where: str) -> None:
    if found.keys() != expected.keys():
        odd = sorted(found.keys() ^ expected.keys())
        raise LawBroken(f"{where}: only one of two runs has {', '.join(odd)}")


def facts(ran: Ran) -> list[dict[str, Any]]:
    """Return the history without the clock."""
    return [record.flat() | {"seconds": None} for record in ran.history]


def assert_agree(one: Ran, other: Ran, names: tuple[str, str] = ("loop", "vector")) -> None:
    """Raise an error unless two engines compute the same to rounding, round by round.

    Args:
        one: A run.
        other: The same run, computed in another way.
        names: What the two are called in the error.
    """
    for t, (expected, found) in enumerate(zip(one.after, other.after, strict=True)):
        assert_close(found, expected, ROUNDING, f"{names[0]} and {names[1]} disagree after round {t}")
    for t, (before, after) in enumerate(zip(facts(one), facts(other), strict=True), start=1):
        for name, value in before.items():
            same = _near(after[name], value) if isinstance(value, float) else after[name] == value
            if not same:
                raise LawBroken(f"{names[0]} and {names[1]} disagree in round {t}: {name} is {value} and {after[name]}")


def _near(found: float | None, expected: float | None) -> bool:
    if found is None or expected is None:
        return found is expected
    return abs(found - expected) <= max(ROUNDING * abs(expected), 1e-12)


def assert_unmoved(ran: Ran, served_too: bool) -> None:
    """Raise an error if a run in which no client moves has moved the model.

    Args:
        ran: A run of one round.
        served_too: Whether the model that is served must stay as well; not so after a survey.
    """
    start, end = ran.after
    for name in ("w", *(["served"] if served_too else [])):
        if not torch.equal(end[name], start["w"]):
            what = "the model" if name == "w" else "the served model"
            raise LawBroken(f"{what} moves though no client moves: server hooks must change nothing then")


def assert_continues(whole: Ran, rest: Ran, done: int) -> None:
    """Raise an error unless a resumed run gives what an uninterrupted one gives, bit for bit.

    Args:
        whole: The uninterrupted run.
        rest: The rounds after the interruption, with the whole history.
        done: The rounds before the interruption.
    """
    where = f"a run that is resumed after round {done} differs from an uninterrupted one"
    if facts(rest) != facts(whole):
        raise LawBroken(f"{where}: the histories are not the same")
    for t, (found, expected) in enumerate(zip(rest.after, whole.after[done:], strict=True), start=done):
        assert_same(found, expected, f"{where}, after round {t}")


def assert_repeats(first: Ran, second: Ran) -> None:
    """Raise an error unless the rounds of a second run are those of the first, bit for bit; it may be shorter."""
    where = "the same run twice gives two results (are there random numbers that do not come from c.key()?)"
    if facts(second) != facts(first)[: len(second.history)]:
        raise LawBroken(f"{where}: the histories are not the same")
    for t, (found, expected) in enumerate(zip(second.after, first.after[: len(second.after)], strict=True)):
        assert_same(found, expected, f"{where}, after round {t}")


def assert_changes_nothing(neutral: Ran, plain: Ran) -> None:
    """Raise an error unless a run gives the models of FedAvg, bit for bit."""
    for t, (one, other) in enumerate(zip(plain.after[: len(neutral.after)], neutral.after, strict=True)):
        found, expected = ({name: after[name] for name in ("w", "served")} for after in (other, one))
        assert_same(found, expected, f"it is not FedAvg, after round {t}")


def assert_fixed_shapes(ran: Ran) -> None:
    """Raise an error unless every state keeps its name and shape once it is there."""
    for t, (before, after) in enumerate(zip(ran.after[:-1], ran.after[1:], strict=True), start=1):
        for name, tensor in before.items():
            if name not in after:
                raise LawBroken(f"the state {name} is gone after round {t}: return every name in every round")
            if after[name].shape != tensor.shape or after[name].dtype != tensor.dtype:
                raise LawBroken(
                    f"the state {name} has another shape after round {t}: {list(after[name].shape)}, not "
                    f"{list(tensor.shape)}"
                )


def neutral_values(cls: type[Part]) -> list[dict[str, str]]:
    """Return the parameters at which a part's documentation says that it "is FedAvg", as text."""
    found: list[dict[str, str]] = []
    for f in fields(cls):
        says = NEUTRAL.search(f.metadata.get("doc", ""))
        found += [{f.name: says[1]}] if says else []
    return found


def neutral_texts(classes: Sequence[type[Part]]) -> list[str]:
    """Return every part at a value that changes nothing, as a sum."""
    return [f"{cls.name}({name}={value})" for cls in classes for v in neutral_values(cls) for name, value in v.items()]
