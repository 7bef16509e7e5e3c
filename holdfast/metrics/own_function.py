"""A metric that is a function of the user: ``function(y, predictions)`` returns a number.

``y`` are the targets and ``predictions`` the probabilities of classes or labels, [n, outputs], or the predicted values,
[n, targets], in the unit of the data; both are NumPy arrays. Higher is better, unless the text that names the function
says ``lower_is_better=true``, as in ``costs.py:cost(lower_is_better=true)``, or a function of a Python session has an
attribute of this name that is true.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from numbers import Real
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.expression import Call
from holdfast.core.user_files import FileReference, failure, function_in
from holdfast.metrics.metric import Metric
from holdfast.metrics.predictions import Predictions
from holdfast.tasks.task import CLASS, LABELS, NUMBERS

Scorer = Callable[..., Any]
LOWER = "lower_is_better"  # the parameter, or the attribute, that turns the direction round
_given: dict[str, Scorer] = {}  # the functions that were passed from Python in this process, by name


@dataclass(frozen=True)
class OwnFunction(Metric):
    """A function of the user as a metric; nothing is executed before it is needed.

    Attributes:
        label: Its name in tables and files.
        source: Where the function is: in a file, or in this process; None: nowhere.
        lower: Whether lower is better.
    """

    summary = "your own function"
    tasks = (CLASS, LABELS, NUMBERS)

    label: str
    source: FileReference | Scorer | None
    lower: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.label)
        object.__setattr__(self, "higher_is_better", not self.lower)

    def __str__(self) -> str:
        return self.label

    @cached_property
    def function(self) -> Scorer:
        """The function itself; its file is executed."""
        if self.source is None:
            raise HoldfastError(f"the metric {self.label} was a function of a Python session: pass it as metric=")
        return function_in(self.source, "metric") if isinstance(self.source, FileReference) else self.source

    def installed(self) -> bool:
        """Tell whether the function is known."""
        return self.source is not None

    def require(self) -> None:
        """Raise an error if there is no such function, or if it has another direction than the text says."""
        if getattr(unwrapped(self.function), LOWER, False) and not self.lower:
            call = self.source.call if isinstance(self.source, FileReference) else Call(self.label)
            file = self.label.partition(":")[0]
            text = f"{file}:{Call(call.name, call.args, {**call.kwargs, LOWER: True})}"
            raise HoldfastError(f"the metric {self.label} has the attribute {LOWER}: write --metric '{text}'")

    def compute(self, p: Predictions) -> float:
        assert p.outputs is not None
        predictions = p.outputs if p.task.targets == NUMBERS else p.probabilities
        try:
            value = self.function(p.y.numpy(), predictions.numpy())
            value = value.item() if getattr(value, "size", None) == 1 or getattr(value, "ndim", None) == 0 else value
        except HoldfastError:
            raise
        except Exception as error:
            raise failure(f"the metric {self.label}", error) from error
        if not isinstance(value, Real):
            kind = "None" if value is None else f"a {type(value).__name__}"
            raise HoldfastError(f"the metric {self.label} returned {kind}, expected a number: return a float")
        return float(value) if math.isfinite(value) else math.nan


def from_file(reference: FileReference) -> OwnFunction:
    """Make the metric that a text such as ``costs.py:cost(miss=5, lower_is_better=true)`` names."""
    call, lower = without_direction(reference.call)
    label = f"{Path(reference.file).name}:{call}"
    return OwnFunction(label, reference._replace(call=call), lower)


def from_name(call: Call) -> OwnFunction:
    """Make the metric of a function that was passed from Python, in this process or in an earlier one."""
    call, lower = without_direction(call)
    return OwnFunction(str(call), _given.get(call.name), lower)


def without_direction(call: Call) -> tuple[Call, bool]:
    """Return a call without the parameter of its direction, and whether lower is better."""
    lower = call.kwargs.get(LOWER, False)
    if not isinstance(lower, bool):
        raise HoldfastError(f"the metric {call.name}: {LOWER} must be true or false, not {lower}")
    return replace(call, kwargs={k: v for k, v in call.kwargs.items() if k != LOWER}), lower


def text_of(function: Scorer) -> str:
    """Return the text that names a function of a Python session in the config of a run, and remember the function."""
    name = str(getattr(unwrapped(function), "__name__", type(function).__name__))
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise HoldfastError(f"the metric {name} has no name that tables could use: define it with def")
    _given[name] = function
    return str(Call(name, (), {LOWER: True} if getattr(unwrapped(function), LOWER, False) else {}))


def unwrapped(function: Scorer) -> Scorer:
    """Return the function inside a ``partial``."""
    return function.func if isinstance(function, partial) else function
