"""The numbers of a method that a traced step takes as inputs, and what it has built in.

Runs whose methods differ in nothing but such numbers can share steps. Which these are follows from the method alone, so
that a run takes the same path alone as in company.
"""

from __future__ import annotations

from dataclasses import Field, fields

from torch import Tensor

from holdfast.core.tensors import Tensors
from holdfast.method.hook_checks import checked_part
from holdfast.method.method import Method
from holdfast.method.part import AT_SERVER, Part

ONLY_AT_SERVER = {"init_server", "serve", *AT_SERVER} - {"trips"}
STEP_HOOKS = ("teachers", "lr", "rate", "task_loss", "penalty", "gradient", "direction", "optimise", "gain")
ANY_NUMBER = "any number"


def step_numbers(part: Part) -> dict[str, float]:
    """Return the numbers of a part that its steps take as inputs; none if a step does not call the part.

    >>> from holdfast.parts.prox import Prox
    >>> step_numbers(Prox(0.1))
    {'mu': 0.1}
    """
    if not in_steps(part):
        return {}
    return {f.name: getattr(part, f.name) for f in fields(part) if f.metadata.get("step_input") and is_number(part, f)}


def in_steps(part: Part) -> bool:
    """Tell whether steps call a part."""
    return any(map(part.fills, STEP_HOOKS))


def is_number(part: Part, f: Field[object]) -> bool:
    """Tell whether a parameter is a number that is not whole, and set."""
    return str(f.type).startswith("float") and isinstance(getattr(part, f.name), float)


def built_in(method: Method) -> tuple[object, ...]:
    """Return what a traced step has built in of a method; methods that are equal in it can share steps.

    Parts that do nothing at clients, such as robust means and server optimisers, are left out.
    """
    filled = [(part, tuple(filter(part.fills, part.hooks()))) for part in method.parts]
    return tuple((type(p), hooks, *built_in_fields(p)) for p, hooks in filled if not ONLY_AT_SERVER.issuperset(hooks))


def built_in_fields(part: Part) -> tuple[object, ...]:
    """Return the parameters of a part, with a word in place of numbers that a step does not have built in."""
    inside = in_steps(part)
    return tuple(
        ANY_NUMBER if is_number(part, f) and (f.metadata.get("step_input") or not inside) else getattr(part, f.name)
        for f in fields(part)
    )


def with_numbers(part: Part, numbers: Tensors) -> Part:
    """Return a part that computes with tensors in place of some of its numbers, which are not checked again.

    Args:
        part: The part.
        numbers: The tensors by the names of the parameters.

    Returns:
        The part itself if there are none.
    """
    if not numbers:
        return part
    twin: Part = object.__new__(type(part))
    for f in fields(part):
        value: Tensor | object = numbers.get(f.name, getattr(part, f.name))
        object.__setattr__(twin, f.name, value)
    return checked_part(twin)
