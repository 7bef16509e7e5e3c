"""What is searched for a method: every parameter that declares a range and that the user has not set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, fields
from typing import Any

from holdfast.comparison.part_sweeps import (
    call_that_sets,
    checked_value,
    is_part_axis,
    parameter_field,
    part_names,
    value_to_text,
    values_from_text,
)
from holdfast.comparison.plan import words
from holdfast.core.errors import HoldfastError, unknown
from holdfast.core.params import SCALES, SearchRange, checked, limits, search_range, within
from holdfast.method.config import FIELDS, RIVALS, Config, with_role
from holdfast.method.config_text import setting_from_text
from holdfast.method.method import Method
from holdfast.tuning.search_axis import SearchAxis

Wanted = SearchRange | list[Any]  # a range, or a list of values
EXPECTED = "expected LOW..HIGH, LOW..HIGH log or a list such as A,B,C"


def space_of(
    text: str, method: Method, config: Config, given: Mapping[str, Any], wanted: Mapping[str, Wanted]
) -> list[SearchAxis]:
    """Return what is searched for a method: settings first, then the parameters of its parts.

    Args:
        text: The method as the user wrote it; the parameters that it sets are not searched.
        method: The method, built.
        config: The settings of all runs.
        given: The settings that the user has set; they are not searched.
        wanted: Ranges and lists of the user, by name; they replace declared ranges.

    Returns:
        The axes. One without any is an error.
    """
    settings = [name for name in FIELDS if name in wanted or (search_range(FIELDS[name]) and free(name, given, wanted))]
    if any(part.fills("lr") for part in method.parts):  # such a part replaces the learning rate
        settings = [name for name in settings if name != "lr" or name in wanted]
    axes = [setting_axis(name, config, wanted.get(name)) for name in settings]
    for part in method.parts:
        for f in fields(part):
            name = f"{part.name}.{f.name}"
            if name in wanted or (search_range(f) and call_that_sets(name, text) is None):
                axes.append(axis(name, f, getattr(part, f.name), wanted.get(name)))
    if not axes:
        raise nothing_to_search(text, method)
    return axes


def free(name: str, given: Mapping[str, Any], wanted: Mapping[str, Wanted]) -> bool:
    """Tell whether neither a setting nor one that rules it out is set by the user, or searched in its place."""
    rivals = {other for pair in RIVALS if name in pair for other in pair if other != name}
    return name not in given and not rivals & {*given, *wanted}


def nothing_to_search(text: str, method: Method) -> HoldfastError:
    """Return the error for a method of which everything is set, which names what has a range."""
    names = [name for name, f in FIELDS.items() if search_range(f)]
    names += [f"{part.name}.{f.name}" for part in method.parts for f in fields(part) if search_range(f)]
    return HoldfastError(
        f"nothing to search for {text}: of what has a range ({', '.join(names)}) everything is set; leave one of them "
        "out, or search another: --search 'server_lr=0.3..3 log'"
    )


def setting_axis(name: str, config: Config, wanted: Wanted | None) -> SearchAxis:
    """Return the axis of a setting; its usual value is that of the config."""
    usual = config.passes if name == "epochs" else getattr(config, name)
    return axis(name, FIELDS[name], usual, wanted)


def axis(name: str, f: Field[Any], usual: Any, wanted: Wanted | None) -> SearchAxis:
    """Return an axis over the user's range or list, or else over the declared range.

    Args:
        name: Its name.
        f: The field of the setting or parameter.
        usual: Its value if it is not searched.
        wanted: What the user asks for.

    Returns:
        The axis, with a range within the bounds of the parameter.
    """
    if isinstance(wanted, list):
        return SearchAxis(name, usual, values=checked_values(name, f, wanted))
    low, high, scale = wanted or search_range(f) or SearchRange(0, 0)
    whole = str(f.type).startswith("int")
    check_range(name, f, SearchRange(low, high, scale), whole)
    ends = [float(f.metadata[bound]) for bound in ("low", "high") if bound in f.metadata]
    return SearchAxis(name, usual, float(low), float(high), scale == "log", whole, None, ends or None, wanted is None)


def check_range(name: str, f: Field[Any], found: SearchRange, whole: bool) -> None:
    """Raise an error for a range of something that is no number, one that is empty, or one that leaves the bounds."""
    low, high, scale = found
    if not whole and not str(f.type).startswith("float"):
        raise HoldfastError(f"{name} is not a number: search a list of values instead, such as {name}=A,B")
    if scale not in SCALES:
        raise HoldfastError(f"the scale of {name} must be one of {', '.join(SCALES)}, not {scale}")
    if not low < high:
        raise HoldfastError(f"the range {found} of {name} is empty: write the smaller number first")
    if scale == "log" and low <= 0:
        raise HoldfastError(f"the range {found} of {name} must start above 0 on a logarithmic scale: raise its low end")
    if whole and not (float(low).is_integer() and float(high).is_integer()):
        raise HoldfastError(f"the range {found} of {name} must have whole numbers as its ends")
    if not (within(f, low) and within(f, high)):
        raise HoldfastError(f"the range {found} of {name} leaves its bounds, {limits(f)}: narrow it")


def checked_values(name: str, f: Field[Any], values: Sequence[Any]) -> list[Any]:
    """Return a list of values in the type of a parameter, each within its bounds."""
    part = name.rpartition(".")[0]
    found = [checked_value(part, f, v) if part else checked("", f, v) for v in values]
    for value in found:
        if found.count(value) > 1:
            raise HoldfastError(f"the search of {name} lists {value_to_text(name, value)} twice: remove one")
        if isinstance(value, tuple):
            raise HoldfastError(f"{name} cannot be searched: its values are lists; compare them with --sweep")
    if len(found) < 2:
        raise HoldfastError(f"the search of {name} needs at least two values: set it instead")
    return found


def check_wanted(wanted: Mapping[str, Wanted], texts: Sequence[str], given: Mapping[str, Any]) -> None:
    """Check the names of what the user wants to search.

    Args:
        wanted: Ranges and lists by name.
        texts: The methods.
        given: The settings that the user has set.
    """
    for name in wanted:
        if not is_part_axis(name):
            check_setting(name, given)
            continue
        part, _, parameter = name.partition(".")
        parameter_field(part, parameter, "search", "searched")
        having = [text for text in texts if part in part_names(text)]
        if not having:
            raise HoldfastError(f"{name} cannot be searched: no method has the part {part}; add one, such as {part}")
        for text in having:
            call = call_that_sets(name, text)
            if call is not None:
                raise HoldfastError(f"{name} is both searched and set in {call}: leave one of them out")


def check_setting(name: str, given: Mapping[str, Any]) -> None:
    """Raise an error for a setting that cannot be searched, or that is set as well."""
    if name not in FIELDS:
        raise unknown("setting to search", name, with_role("tunable"))
    if name not in with_role("tunable"):
        raise HoldfastError(
            f"{name} cannot be searched, since scores would mean something else; these can: "
            f"{', '.join(with_role('tunable'))}"
        )
    if name in given:
        raise HoldfastError(f"{name} is both searched and set to {given[name]}: leave one of them out")


def search_from_texts(texts: Sequence[str]) -> dict[str, Wanted]:
    """Read what users write after ``--search``.

    >>> search_from_texts(["lr=0.01..1 log", "prox.mu = 0..1", "batch=16,32"])
    {'lr': SearchRange(low=0.01, high=1.0, scale='log'), 'prox.mu': SearchRange(low=0.0, high=1.0, scale='linear'), \
'batch': [16, 32]}
    """
    found: dict[str, Wanted] = {}
    for text in texts:
        name, equals, what = text.partition("=")
        part, dot, last = name.strip().rpartition(".")
        name = part + dot + last.replace("-", "_")
        if not equals or not what.strip():
            raise HoldfastError(f"--search {text}: expected NAME=LOW..HIGH, such as 'lr=0.01..1 log'")
        if name in found:
            raise HoldfastError(f"{name} is searched twice: write --search {name}=... once")
        found[name] = wanted_from_text(name, what.strip())
    return found


def wanted_from_text(name: str, text: str) -> Wanted:
    """Read a range such as ``0.01..1 log``, or a list of values."""
    if ".." not in text:
        if not is_part_axis(name) and name not in FIELDS:
            raise unknown("setting to search", name, with_role("tunable"))
        pieces = words(text)
        return values_from_text(pieces) if is_part_axis(name) else [setting_from_text(name, word) for word in pieces]
    low, _, rest = text.partition("..")
    high, _, scale = rest.strip().partition(" ")
    try:
        return SearchRange(float(low), float(high), scale.strip() or "linear")
    except ValueError:
        raise HoldfastError(f"the search of {name} is {text}: {EXPECTED}") from None


def wanted_from_python(search: Mapping[str, Any]) -> dict[str, Wanted]:
    """Read the argument ``search`` of ``holdfast.tune``: texts, tuples ``(low, high, scale)`` and lists of values."""
    found: dict[str, Wanted] = {}
    for name, what in search.items():
        if isinstance(what, str):
            found[name] = wanted_from_text(name, what)
        elif isinstance(what, tuple) and 2 <= len(what) <= 3 and all(isinstance(v, int | float) for v in what[:2]):
            found[name] = SearchRange(*what)
        elif isinstance(what, list):
            found[name] = what
        else:
            raise HoldfastError(f"the search of {name} is {what}: expected (low, high), (low, high, 'log') or a list")
    return found
