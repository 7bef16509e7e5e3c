"""Things that a user can name in a string: parts, splits, data sets and models.

Each is a frozen dataclass whose fields are its parameters. A parameter states its default, its meaning and its range
once, with ``param``. They are checked whenever an object is made.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, TypeVar

from holdfast.core.errors import HoldfastError, unknown
from holdfast.core.expression import Call, Value, parse, show

T = TypeVar("T", bound="Named")
LARGEST_INT = 2**63  # whole numbers are 64-bit integers in tensors
SCALES = ("linear", "log")


class SearchRange(NamedTuple):
    """Where ``holdfast tune`` looks for a number: from ``low`` to ``high``, evenly on a linear or logarithmic scale."""

    low: float
    high: float
    scale: str = "linear"

    def __str__(self) -> str:
        """Return the text that ``--search`` reads, such as ``0.0001..1 log``."""
        return f"{self.low:g}..{self.high:g}{' log' if self.scale == 'log' else ''}"


def param(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] = (),
    roles: tuple[str, ...] = (),
    not_swept: str = "",
    ranges: bool = False,
    words: tuple[str, str] | None = None,
    renamed: Mapping[str, str] | None = None,
    search: tuple[float, float] | tuple[float, float, str] | str = "",
    step_input: bool = False,
) -> Any:
    """Declare a parameter with everything that is known about it.

    Args:
        default: The default value; ``dataclasses.MISSING`` makes the parameter required.
        doc: The meaning, in a few words, for help texts and tables.
        low: The smallest value allowed.
        high: The largest value allowed.
        above: A bound that the value must exceed.
        below: A bound that the value must stay under.
        choices: The words allowed; a number may have words as alternatives. ``cuda:N`` stands for any number N.
        roles: What the setting is to the rest of the library (settings of a run only, see ``method.config``).
        not_swept: Why a comparison cannot sweep the setting, as a remedy (settings of a run only).
        ranges: Whether a whole number may also be a range, such as ``2-5``.
        words: For a switch that may also be a text: the texts that mean false and true.
        renamed: Words of earlier versions, with those of today.
        search: The range over which ``holdfast tune`` searches a number, such as ``(1e-4, 1, "log")``, or the reason
            why it does not.
        step_input: Whether the hooks of a step take the number as a tensor, so that runs with other values can share
            steps: if they use it, they compute with it, and decide nothing by it in Python (parameters of parts only).

    Returns:
        A dataclass field.
    """
    bounds = {"low": low, "high": high, "above": above, "below": below}
    metadata: dict[str, Any] = {"doc": doc, "choices": choices, "roles": roles, "not_swept": not_swept}
    metadata |= {"ranges": ranges, "words": words, "renamed": renamed or {}, "step_input": step_input}
    metadata |= {"search": search if isinstance(search, str) else SearchRange(*search)}
    return field(default=default, metadata=metadata | {k: v for k, v in bounds.items() if v is not None})


def search_range(f: Field[Any]) -> SearchRange | None:
    """Return the range over which a parameter is searched; None if it is not."""
    found = f.metadata.get("search")
    return found if isinstance(found, SearchRange) else None


@dataclass(frozen=True)
class Named:
    """The base of everything that has a name; its parameters are checked when it is made.

    Attributes:
        name: The name to use in a string.
    """

    name: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, checked(self.name, f, getattr(self, f.name)))

    def __str__(self) -> str:
        """Return the text that ``parse`` reads, with every parameter that differs from its default."""
        changed = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return str(Call(self.name, (), changed))


def limits(f: Field[Any]) -> str:
    """Describe a parameter's range: ``in [0, 1]``, ``above 0``, ``one of samples, uniform``."""
    m = f.metadata
    if m.get("choices") and str(f.type).startswith("float"):
        return limits_of(m) + " or " + " or ".join(m["choices"])
    return "one of " + ", ".join(m["choices"]) if m.get("choices") else limits_of(m)


def limits_of(m: Mapping[str, Any]) -> str:
    """Describe the range of a number from its bounds."""
    if {"low", "high"} <= m.keys():
        return f"in [{m['low']}, {m['high']}]"
    if {"above", "high"} <= m.keys():
        return f"in ({m['above']:g}, {m['high']:g}]"
    if {"low", "below"} <= m.keys():
        return f"in [{m['low']:g}, {m['below']:g})"
    if {"above", "below"} <= m.keys():
        return f"in ({m['above']:g}, {m['below']:g})"
    words = {"low": "at least", "high": "at most", "above": "above", "below": "below"}
    return " and ".join(f"{words[k]} {m[k]:g}" for k in words if k in m)


def checked(owner: str, f: Field[Any], value: Any) -> Any:
    """Convert the value of a parameter to its type.

    Args:
        owner: The name of the thing that has the parameter, for the error; empty for the settings of a run.
        f: The parameter's field.
        value: The value as given.

    Returns:
        The value in the parameter's type.

    Raises:
        HoldfastError: If the value has another type or is out of range.
    """
    kind = f.type.__name__ if isinstance(f.type, type) else str(f.type)
    if value is f.default and type(value).__name__ == kind.partition(" ")[0]:
        return value  # nearly all of the sixty settings of a run
    who = f"{owner}: {f.name}" if owner else f.name
    if value is None:
        if "None" in kind:
            return None
    elif kind.startswith("bool"):
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and f.metadata.get("words"):
            return dict(zip(f.metadata["words"], (False, True), strict=True)).get(value, value)
    elif kind.startswith("int"):
        if isinstance(value, str) and f.metadata.get("ranges") and is_range(f, value):
            return value
        if isinstance(value, int) and not isinstance(value, bool) and within(f, value) and abs(value) < LARGEST_INT:
            return value
        if isinstance(value, float) and value.is_integer() and within(f, value) and abs(value) < LARGEST_INT:
            return int(value)
    elif kind.startswith("float"):
        if isinstance(value, str) and value in f.metadata.get("choices", ()):
            return value
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if number and math.isfinite(value) and within(f, value):
            return float(value)
    elif kind.startswith("str"):
        value = f.metadata.get("renamed", {}).get(value, value) if isinstance(value, str) else value
        if isinstance(value, str) and not is_utf8(value):
            raise HoldfastError(f"{who} must be valid UTF-8, not {shortened(ascii(value))}: choose another name")
        if isinstance(value, str) and (not f.metadata.get("choices") or is_choice(value, f.metadata["choices"])):
            return value
    elif kind.startswith("tuple[str"):
        value = (value,) if isinstance(value, str) else value
        if isinstance(value, (tuple, list)) and all(isinstance(v, str) and is_utf8(v) for v in value):
            return tuple(value)
    elif kind.startswith("tuple"):
        value = (value,) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
        if isinstance(value, (tuple, list)) and all(isinstance(v, (int, float)) and within(f, v) for v in value):
            return tuple(value)
    else:
        return value
    noun = {
        "tuple": "a number or a list of numbers",
        "int": "a whole number",
        "float": "a number",
        "bool": "true or false",
        "str": "",
    }
    base = kind.split(" |")[0].split("[")[0]
    noun |= {"tuple": "a word or a list of words"} if kind.startswith("tuple[str") else {}
    bounds = limits(f)
    joined = " of " if noun.get(base) and bounds.startswith(("at least", "at most")) else " "
    what = f"{noun.get(base, base)}{joined}{bounds}".strip() or "a word"
    if f.metadata.get("ranges"):
        what += " or a range such as 2-5"
    if f.metadata.get("words"):
        what = "true, false or a text"
    if base == "int" and isinstance(value, (int, float)) and abs(value) >= LARGEST_INT and math.isfinite(value):
        what += " that fits 64 bits"
    raise HoldfastError(f"{who} must be {what}, not {shortened(show(value))}")


def is_choice(text: str, choices: tuple[str, ...]) -> bool:
    """Tell whether a text is one of the words allowed.

    >>> [is_choice(text, ("cpu", "cuda:N")) for text in ("cpu", "cuda:12", "cuda:N", "cuda:01")]
    [True, True, False, False]
    """
    return re.sub(r":(0|[1-9][0-9]{0,3})$", ":N", text) in choices and not text.endswith(":N")


def is_utf8(text: str) -> bool:
    """Tell whether a text can be written to a file; names of files on disk may hold any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shortened(text: str, most: int = 60) -> str:
    """Cut a long text for an error message."""
    return text if len(text) <= most else f"{text[:most]}..."


def within(f: Field[Any], value: float) -> bool:
    """Tell whether a number is in the range of a parameter."""
    m = f.metadata
    return bool(
        value >= m.get("low", -math.inf)
        and value <= m.get("high", math.inf)
        and value > m.get("above", -math.inf)
        and value < m.get("below", math.inf)
    )


def is_range(f: Field[Any], text: str) -> bool:
    """Tell whether a text such as ``2-5`` is a range of values of a parameter, with the smaller one first."""
    if not re.fullmatch(r"[0-9]{1,18}-[0-9]{1,18}", text):
        return False
    low, high = map(int, text.split("-"))
    return low <= high and within(f, low)


def build(call: Call, known: Mapping[str, type[T]], kind: str) -> T:
    """Make the named thing that a call asks for.

    Args:
        call: The name and its arguments.
        known: The classes by name.
        kind: What the classes are, for the error: "split", "model", ...

    Returns:
        An object of the class with that name.
    """
    if call.name not in known:
        raise unknown(kind, call.name, known)
    return make(known[call.name], call.args, call.kwargs)


def make(cls: type[T], args: tuple[Value, ...], kwargs: Mapping[str, Value]) -> T:
    """Make an object with arguments that a user wrote.

    Args:
        cls: The class.
        args: Positional arguments, in the order of its parameters.
        kwargs: Named arguments.

    Returns:
        The object. Unknown, repeated and missing arguments are errors.
    """
    names = [f.name for f in fields(cls)]
    if len(args) > len(names):
        takes = (
            f"takes {len(names)} ({', '.join(names)}): leave out the others" if names else "takes none: leave it out"
        )
        count = "1 argument" if len(args) == 1 else f"{len(args)} arguments"
        raise HoldfastError(f"{cls.name}: {count} given, but it {takes}")
    given: dict[str, Value] = dict(zip(names, args, strict=False))
    for key, value in kwargs.items():
        if key not in names:
            if not names:
                raise HoldfastError(f"{cls.name}: {key} given, but it takes no parameters: leave it out")
            raise unknown("parameter", key, names, f"of {cls.name}")
        if key in given:
            raise HoldfastError(f"{cls.name}: {key} is given twice; keep one of them")
        given[key] = value
    for f in fields(cls):
        if f.default is MISSING and f.name not in given:
            raise HoldfastError(
                f"{cls.name}: {f.name} is missing ({f.metadata['doc']}): write {cls.name}({f.name}=...)"
            )
    return cls(**given)


def one(text: str, kind: str) -> Call:
    """Read a string that must be a single call."""
    calls = parse(text)
    if len(calls) != 1:
        raise HoldfastError(f"{text!r} is a sum, but a {kind} is one name with its parameters: keep one of them")
    return calls[0]
