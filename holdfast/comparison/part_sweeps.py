"""Sweeps of a part's parameter, such as ``prox.mu``: every method that has the part runs with each of the values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, replace
from typing import Any

from holdfast.core.errors import HoldfastError, unknown
from holdfast.core.expression import Call, parse, show
from holdfast.core.params import checked
from holdfast.method.config_text import setting_to_text
from holdfast.method.method import Method
from holdfast.method.part import Part, parts
from holdfast.method.recipes import RECIPES


def is_part_axis(name: str) -> bool:
    """Tell whether a swept name is a part's parameter; all others are settings."""
    return "." in name


def axes_of(text: str, sweep: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Return the axes of a sweep that change a method: every setting, and the parameters of its own parts.

    >>> axes_of("fedbug(0.4)+fedprox", {"lr": [0.1], "prox.mu": [0.01, 0.1], "sam.rho": [0.1]})
    {'lr': [0.1], 'prox.mu': [0.01, 0.1]}
    """
    if not any(map(is_part_axis, sweep)):
        return dict(sweep)
    own = part_names(text)
    return {name: values for name, values in sweep.items() if not is_part_axis(name) or name.partition(".")[0] in own}


def part_names(text: str) -> list[str]:
    """Return the names of the parts in a sum; recipes are written out.

    >>> part_names("fedbug(0.4)+mofedsam")
    ['fedbug', 'fedcm', 'sam']
    """
    return [part.name for call in parse(text) for part in written_out(call)]


def written_out(call: Call) -> list[Call]:
    """Return the parts that a name in a sum stands for."""
    if call.name not in RECIPES:
        return [call]
    return parse(RECIPES[call.name].sum) if RECIPES[call.name].sum else []


def with_values(method: Method, settings: Mapping[str, Any]) -> Method:
    """Return a method with the parameters at one point of a sweep.

    >>> str(with_values(Method.parse("fedbug(0.4)+prox"), {"lr": 0.1, "prox.mu": 0.5}))
    'fedbug + prox(mu=0.5)'
    """
    changes: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        if is_part_axis(name):
            part, _, parameter = name.partition(".")
            changes.setdefault(part, {})[parameter] = value
    return Method(tuple(replace(p, **changes[p.name]) if p.name in changes else p for p in method.parts))


def text_with_values(text: str, settings: Mapping[str, Any]) -> str:
    """Write a method with the parameters at one point of a sweep, otherwise as the user wrote it.

    >>> text_with_values("fedbug(0.4)+fedprox", {"lr": 0.1, "prox.mu": 0.5})
    'fedbug(0.4)+fedprox(mu=0.5)'
    >>> text_with_values("fedbug(0.4) + prox", {"lr": 0.1})
    'fedbug(0.4) + prox'
    """
    swept = {name: value for name, value in settings.items() if is_part_axis(name)}
    if not swept:
        return text
    calls = parse(text)
    for name, value in swept.items():
        part, _, parameter = name.partition(".")
        calls = [changed(call, part, parameter, value) if is_in(part, call) else call for call in calls]
    return "+".join(map(str, calls))


def is_in(part: str, call: Call) -> bool:
    """Tell whether a name in a sum is a part, or stands for a sum that has it."""
    return any(one.name == part for one in written_out(call))


def changed(call: Call, part: str, parameter: str, value: Any) -> Call:
    """Return a part or a recipe with another value of a parameter, where it was or as a named argument.

    Args:
        call: The part or recipe as written.
        part: The part that has the parameter.
        parameter: Its name.
        value: The new value.

    Returns:
        The call with that value.
    """
    first, known = (written_out(call) or [call])[0].name, parts()
    names = names_of(known[first]) if first == part and first in known else []
    if parameter in names[: len(call.args)]:
        at = names.index(parameter)
        return Call(call.name, (*call.args[:at], value, *call.args[at + 1 :]), call.kwargs)
    return Call(call.name, call.args, {**call.kwargs, parameter: value})


def check_axis(name: str, values: Sequence[Any], texts: Sequence[str]) -> tuple[Any, ...]:
    """Check the values of a part's parameter.

    Args:
        name: The axis, such as ``prox.mu``.
        values: Its values.
        texts: The methods of the comparison, as text.

    Returns:
        The values in the type of the parameter.
    """
    part, _, parameter = name.partition(".")
    f = parameter_field(part, parameter)
    having = [text for text in texts if part in part_names(text)]
    if not having:
        raise HoldfastError(
            f"{name} cannot be swept: no method of the comparison has the part {part}; add one, such as {part}"
        )
    for text in having:
        refuse_set(name, text, f)
    return tuple(checked_value(part, f, value) for value in values)


def parameter_field(part: str, parameter: str, verb: str = "sweep", done: str = "swept") -> Field[Any]:
    """Return the field of a part's parameter; a name that does not exist is an error.

    Args:
        part: The part.
        parameter: The name of its parameter.
        verb: What is to be done with it, for the error.
        done: The same as a participle.

    Returns:
        The field.
    """
    known = parts()
    if part in RECIPES and part not in known:
        calls = written_out(Call(part))
        if not calls:
            raise HoldfastError(
                f"{part}.{parameter} cannot be {done}: {part} has no parameters; name a part, such as prox.mu"
            )
        owner = next((c.name for c in calls if parameter in names_of(known[c.name])), calls[0].name)
        raise HoldfastError(
            f"{part}.{parameter} cannot be {done}: {part} stands for {RECIPES[part].sum}; name the part, such as "
            f"{owner}.{parameter}"
        )
    if part not in known:
        raise unknown(f"part to {verb}", part, known)
    own = {f.name: f for f in fields(known[part])}
    if not own:
        raise HoldfastError(f"{part}.{parameter} cannot be {done}: {part} takes no parameters; leave it out")
    if parameter not in own:
        raise unknown("parameter", parameter, own, f"of {part}")
    return own[parameter]


def names_of(part: type[Part]) -> list[str]:
    return [f.name for f in fields(part)]


def refuse_set(name: str, text: str, f: Field[Any]) -> None:
    """Refuse a method that sets the swept parameter itself, unless it must, because there is no default."""
    call = None if f.default is MISSING else call_that_sets(name, text)
    if call is not None:
        raise HoldfastError(f"{name} is both swept and set in {call}: leave one of them out")


def call_that_sets(name: str, text: str) -> Call | None:
    """Return the part or recipe in a sum that sets a parameter itself, if there is one.

    >>> str(call_that_sets("prox.mu", "fedbug(0.4)+prox(0.1)")), call_that_sets("prox.mu", "fedbug(0.4)+prox")
    ('prox(0.1)', None)
    """
    part, _, parameter = name.partition(".")
    for call in parse(text):
        first, *_ = written_out(call) or [call]
        positions = names_of(parts()[part])[: len(call.args)] if first.name == part else []
        if parameter in positions or (parameter in call.kwargs and is_in(part, call)):
            return call
    return None


def checked_value(part: str, f: Field[Any], value: Any) -> Any:
    """Return a value in the type of the parameter, checked against its range."""
    return checked(part, f, unlisted(value))


def unlisted(value: Any) -> Any:
    """Return a list as a tuple, as parameters have it, and any other value as it is."""
    return tuple(value) if isinstance(value, list) else value


def values_from_text(words: Iterable[str]) -> list[Any]:
    """Read the values of a part's parameter as they are written in a sum.

    >>> values_from_text(["0.1", "top-down", "[1, 2]", "none"])
    [0.1, 'top-down', (1, 2), None]
    """
    return [parse(f"value({word})")[0].args[0] if word else "" for word in words]


def value_to_text(name: str, value: Any) -> str:
    """Write a swept value so that reading it gives the same value again.

    >>> value_to_text("split", "shards(2)"), value_to_text("prox.mu", 1.0), value_to_text("a.b", "two words")
    ('shards(2)', '1', "'two words'")
    """
    return show(value) if is_part_axis(name) and isinstance(value, str) else setting_to_text(value)
