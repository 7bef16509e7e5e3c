"""A metric that is a function of the user: ``function(y, predictions)`` returns a number.

``y`` are the targets and ``predictions`` the probabilities of classes or labels, [n, outputs], or the predicted numbers,
[n, targets], in the unit of the data; both are NumPy arrays. Higher is better unless the function has an attribute
``higher_is_better`` that is False.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.user_files import FileReference, failure, function_in
from holdfast.metrics.metric import Metric
from holdfast.metrics.predictions import Predictions
from holdfast.tasks.task import CLASS, LABELS, NUMBERS

Scorer = Callable[..., Any]
HIGHER = "higher_is_better"  # the attribute of a function that sets its direction


@dataclass(frozen=True)
class OwnFunction(Metric):
    """A function of the user as a metric; its name is that of the function.

    Attributes:
        function: Takes targets and predictions, returns a number.
        label: What tables call it.
    """

    summary = "your own function"
    tasks = (CLASS, LABELS, NUMBERS)

    function: Scorer
    label: str

    def __post_init__(self) -> None:
        inner = self.function.func if isinstance(self.function, partial) else self.function
        higher = getattr(inner, HIGHER, True)
        if not isinstance(higher, bool):
            raise HoldfastError(f"the metric {self.label}: its attribute {HIGHER} must be True or False, not {higher!r}")
        object.__setattr__(self, "name", self.label)
        object.__setattr__(self, HIGHER, higher)

    def __str__(self) -> str:
        return self.label

    def compute(self, p: Predictions) -> float:
        assert p.outputs is not None
        predictions = p.outputs if p.task.targets == NUMBERS else p.probabilities
        try:
            value = self.function(p.y.numpy(), predictions.numpy())
        except HoldfastError:
            raise
        except Exception as error:
            raise failure(f"the metric {self.label}", error) from error
        if hasattr(value, "item") and getattr(value, "size", 0) == 1:
            value = value.item()  # of NumPy
        if not isinstance(value, numbers.Real):
            raise HoldfastError(f"the metric {self.label} returned {_kind(value)}, expected a number: return a float")
        return float(value) if math.isfinite(value) else math.nan


def from_file(reference: FileReference) -> OwnFunction:
    """Make the metric that a text such as ``scores.py:cost(weight=3)`` names."""
    label = f"{Path(reference.file).name}:{reference.call}"
    return OwnFunction(function_in(reference, "metric"), label)


def function_name(function: Scorer) -> str:
    """Return the name of a function, as tables call it."""
    inner = function.func if isinstance(function, partial) else function
    return str(getattr(inner, "__name__", type(inner).__name__))


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
