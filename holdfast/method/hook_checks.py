"""Mistakes inside a user's hook, in one line: which part, which hook, what it returned and what was expected.

The library's own parts are left as they are and pay nothing. A user's part is replaced by a copy whose hooks check what
they return. Shapes are those of one client, also under ``vmap``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.user_files import raised_at
from holdfast.method.method import Method
from holdfast.method.part import Client, Part, Round, Sent, Trip

# What vmap says about code that it cannot batch, and what to do instead.
REMEDIES = {
    ".item()": "it reads a tensor as a number, which differs between clients: compute with tensors",
    "control flow": "it decides by the value of a tensor, which differs between clients: use torch.where",
    "randomness": "it uses PyTorch's global random numbers: use those of holdfast.core.rng with c.key()",
    "dynamic": "the shape of its result depends on values: use torch.where instead of boolean indexing",
}


class HookError(HoldfastError):
    """A mistake inside a hook of a user's part."""


def checked(method: Method) -> Method:
    """Return the method with hooks that check what they return, for the parts that a user has written."""
    if all(is_library(part) for part in method.parts):
        return method
    return Method(tuple(checked_part(part) for part in method.parts))


def is_library(part: Part) -> bool:
    """Tell whether a part belongs to the library."""
    return type(part).__module__.startswith("holdfast.")


def checked_part(part: Part) -> Part:
    """Return an equal part whose hooks check what they return; one of the library as it is."""
    if is_library(part) or not hasattr(part, "__dict__"):
        return part
    twin = copy.copy(part)
    for hook in part.hooks():
        object.__setattr__(twin, hook, guarded(part, hook))
    return twin


def guarded(part: Part, hook: str) -> Callable[..., Any]:
    """Return a hook that names itself in errors."""
    function, check = getattr(part, hook), CHECKS[hook]

    @wraps(function)
    def call(*args: Any) -> Any:
        try:
            found = function(*args)
        except (HoldfastError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise HookError(f"part {part.name}, hook {hook}: {explained(error, args)}") from error
        why = check(found, args)
        if why:
            raise HookError(f"part {part.name}, hook {hook}: {why}")
        return tuple(checked_trip(trip) for trip in found) if hook == "trips" else found

    return call


def checked_trip(trip: Trip) -> Trip:
    """Return a trip whose parts check what they return."""
    return replace(trip, sum=tuple(checked_part(part) for part in trip.sum))


def explained(error: Exception, args: tuple[Any, ...]) -> str:
    """Word an exception that a hook raised, with the line, and a remedy where one is known."""
    text = " ".join(str(error).split())
    where = raised_at(error)
    if "vmap" in text:
        for sign, remedy in REMEDIES.items():
            if sign in text:
                return f"{remedy}{where}"
    if isinstance(error, KeyError) and args and isinstance(args[0], Client):
        c = args[0]
        held = [f"c.{name} has {names(getattr(c, name))}" for name in ("message", "state", "local")]
        return f"there is no {text}: {', '.join(held)}{where}"
    return f"raised {type(error).__name__}{f': {text}' if text else ''}{where}"


# -- what a hook returned, and what was expected: the sentence, or nothing -------------------------------------------
def described(value: object) -> str:
    """Name what a hook returned."""
    if value is None:
        return "None"
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}" if value.dim() else "a number in a tensor"
    if isinstance(value, (tuple, list)):
        return f"{len(value)} value{'s' * (len(value) != 1)}"
    if isinstance(value, (bool, int, float)):
        return f"the Python number {value}"
    return f"a {type(value).__name__}"


def names(values: Mapping[str, Any]) -> str:
    """List the names in a dictionary."""
    return ", ".join(map(str, values)) or "nothing"


def not_vector(value: object, like: Tensor, what: str = "") -> str:
    """Complain unless a value is a vector like the model ``like``."""
    if isinstance(value, Tensor) and value.shape == like.shape:
        return ""
    return f"returned {described(value)}{what}, expected a vector of the model's length, {list(like.shape)}"


def not_number(value: object, what: str = "") -> str:
    """Complain unless a value is a number in a tensor."""
    if isinstance(value, Tensor) and value.dim() == 0:
        return ""
    return f"returned {described(value)}{what}, expected a number in a tensor"


def not_tensors(value: object, what: str = "") -> str:
    """Complain unless a value is a dictionary of tensors."""
    if not isinstance(value, dict):
        return f"returned {described(value)}{what}, expected a dictionary of tensors, empty if there is nothing to keep"
    for name, tensor in value.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            return f"returned {described(tensor)} as {name!r}{what}, expected a tensor"
    return ""


def not_alike(value: object, before: Mapping[str, Tensor], what: str, made_by: str, kept: bool = True) -> str:
    """Complain unless a value is a dictionary with the names and shapes of ``before``.

    Args:
        value: What the hook returned.
        before: What it should look like.
        what: What it is: "scratch", "state".
        made_by: The hooks that make the first one.
        kept: Whether an empty dictionary keeps the old one.

    Returns:
        The complaint, or nothing.
    """
    why = not_tensors(value, f" as its {what}")
    if why or (kept and not value):
        return why
    assert isinstance(value, dict)
    if value.keys() != before.keys():
        return (
            f"returned a {what} with {names(value)}, expected {names(before)}: return every name that {made_by} gave "
            "it, and no other"
        )
    for name, tensor in value.items():
        if tensor.shape != before[name].shape or tensor.dtype != before[name].dtype:
            kinds = [f"{list(t.shape)} of {str(t.dtype).removeprefix('torch.')}" for t in (tensor, before[name])]
            return f"returned {what} {name!r} with shape {kinds[0]}, expected {kinds[1]}, as {made_by} made it"
    return ""


def not_two(value: object, expected: str) -> str:
    """Complain unless a value is a pair."""
    if isinstance(value, tuple) and len(value) == 2:
        return ""
    return f"returned {described(value)}, expected two values: {expected}"


Check = Callable[[Any, tuple[Any, ...]], str]


def _rate(found: Any, args: tuple[Any, ...]) -> str:
    if isinstance(found, Tensor) and (found.dim() == 0 or found.shape == args[0].w0.shape):
        return ""
    length = list(args[0].w0.shape)
    return f"returned {described(found)}, expected a number in a tensor, or a vector of the model's length, {length}"


def _gradient(found: Any, args: tuple[Any, ...]) -> str:
    why = not_two(found, "the gradient and the task loss")
    return why or not_vector(found[0], args[2], " as the gradient") or not_number(found[1], " as the loss")


def _direction(found: Any, args: tuple[Any, ...]) -> str:
    why = not_two(found, "the new direction and the scratch") or not_vector(found[0], args[1], " as the direction")
    return why or not_alike(found[1], args[0].local, "scratch", "begin and epoch")


def _end(found: Any, args: tuple[Any, ...]) -> str:
    why = not_two(found, "the upload and the state") or not_tensors(found[0], " as the upload")
    return why or not_alike(found[1], args[0].state, "state", "init_client")


def _send(found: Any, args: tuple[Any, ...]) -> str:
    why = not_two(found, "what is sent and the state")
    if why:
        return why
    if not isinstance(found[0], Sent):
        return f"returned {described(found[0])}, expected Sent(delta, uploads)"
    why = not_vector(found[0].delta, args[1].delta, " as the delta")
    return why or not_alike(found[1], args[0].state, "state", "init_client")


def _admit(found: Any, args: tuple[Any, ...]) -> str:
    why = not_two(found, "the round and the uploads")
    return why or ("" if isinstance(found[0], Round) else f"returned {described(found[0])}, expected a Round")


def _tune(found: Any, args: tuple[Any, ...]) -> str:
    why = not_two(found, "the model and the state") or not_vector(found[0], args[2], " as the model")
    return why or not_alike(found[1], args[0], "state", "init_server", kept=False)


def _teachers(found: Any, args: tuple[Any, ...]) -> str:
    why = not_tensors(found)
    return why or next(filter(None, (not_vector(w, args[0].w0, f" as {n!r}") for n, w in found.items())), "")


def _trips(found: Any, args: tuple[Any, ...]) -> str:
    if isinstance(found, tuple) and all(isinstance(trip, Trip) for trip in found):
        return ""
    return f"returned {described(found)}, expected a tuple of Trip"


def _state(found: Any, args: tuple[Any, ...]) -> str:
    return not_alike(found, args[0], "state", "init_server", kept=False)


def _tensors(found: Any, args: tuple[Any, ...]) -> str:
    return not_tensors(found)


def _number(found: Any, args: tuple[Any, ...]) -> str:
    return not_number(found)


def _model(found: Any, args: tuple[Any, ...], of: Callable[[tuple[Any, ...]], Tensor]) -> str:
    return not_vector(found, of(args))


CHECKS: dict[str, Check] = {
    "init_client": _tensors, "init_server": _tensors, "broadcast": _tensors, "consult": _tensors, "begin": _tensors,
    "epoch": _tensors, "survey": _tensors, "teachers": _teachers, "lr": _number, "rate": _rate, "task_loss": _number,
    "penalty": _number, "gradient": _gradient, "direction": _direction, "optimise": _direction, "gain": _rate,
    "end": _end, "send": _send, "trips": _trips, "admit": _admit,
    "aggregate": partial(_model, of=lambda args: args[0].w), "absorb": _state, "digest": _state,
    "server_step": partial(_model, of=lambda args: args[1].w), "tune": _tune,
    "serve": partial(_model, of=lambda args: args[1]),
}  # fmt: skip
