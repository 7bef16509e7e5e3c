"""One searched parameter: a range of numbers, or a list of values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from holdfast.comparison.part_sweeps import value_to_text
from holdfast.core.params import SearchRange

DIGITS = 3  # significant digits of a value that is tried: commands stay readable
EDGE = 0.05  # share of a range that counts as its edge


@dataclass(frozen=True)
class SearchAxis:
    """What is searched, under the name that ``--search`` gives it. The fields are keys of JSON files.

    Attributes:
        name: A setting such as ``lr``, or a part's parameter such as ``prox.mu``.
        usual: Its value if it is not searched.
        low: The lower end of the range; None for a list of values.
        high: The upper end.
        log: Whether the range is searched on a logarithmic scale.
        whole: Whether only whole numbers are tried.
        values: The list of values; None for a range.
        limits: The parameter's own smallest and largest values, where it has them.
        declared: Whether the range is the one that the parameter declares, and not one of the user.
    """

    name: str
    usual: Any
    low: float | None = None
    high: float | None = None
    log: bool = False
    whole: bool = False
    values: list[Any] | None = None
    limits: list[float] | None = None
    declared: bool = False

    def __str__(self) -> str:
        """Return the words that ``--search`` reads.

        >>> str(SearchAxis("prox.mu", 0.01, 1e-4, 1.0, log=True)), str(SearchAxis("batch", 32, values=[16, 32]))
        ('prox.mu=0.0001..1 log', 'batch=16,32')
        """
        if self.values is not None:
            return f"{self.name}={','.join(value_to_text(self.name, v) for v in self.values)}"
        low, high = self.ends
        return f"{self.name}={SearchRange(low, high, 'log' if self.log else 'linear')}"

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the range."""
        if self.low is None or self.high is None:
            raise TypeError(f"{self.name} has a list of values")
        return self.low, self.high

    def holds(self, value: Any) -> bool:
        """Tell whether a value may be tried."""
        if self.values is not None:
            return value in self.values
        low, high = self.ends
        return isinstance(value, int | float) and low <= value <= high

    def shortened(self, value: Any) -> Any:
        """Return a number of the range with few digits; any other value as it is.

        >>> SearchAxis("lr", 0.1, 0.001, 1.0, log=True).shortened(0.0374540118)
        0.0375
        """
        if self.values is not None or self.whole:
            return value
        low, high = self.ends
        return min(max(float(f"{value:.{DIGITS}g}"), low), high)

    def place(self, value: float) -> float:
        """Return where a number is in the range, from 0 to 1 on its scale."""
        low, high = (math.log(v) if self.log else v for v in self.ends)
        return ((math.log(value) if self.log else value) - low) / (high - low)

    def value_at(self, place: float) -> float:
        """Return the number at a place of the range.

        >>> SearchAxis("lr", 0.1, 0.01, 1.0, log=True).value_at(0.5)
        0.1
        """
        low, high = self.ends
        return low * (high / low) ** place if self.log else low + (high - low) * place

    def grid(self, points: int) -> list[Any]:
        """Return values at even distances on the scale, both ends among them; a list of values as it is.

        >>> SearchAxis("lr", 0.1, 0.01, 1.0, log=True).grid(3), SearchAxis("epochs", 5, 1, 3, whole=True).grid(9)
        ([0.01, 0.1, 1.0], [1, 2, 3])
        """
        if self.values is not None:
            return list(self.values)
        found = [self.value_at(i / (points - 1)) for i in range(points)]
        return list(dict.fromkeys(round(v) if self.whole else self.shortened(v) for v in found))

    def at_edge(self, value: Any) -> bool:
        """Tell whether a value lies at an edge of its range beyond which there may be better ones."""
        if self.values is not None:
            return False
        low, high = self.ends
        if self.whole:
            return value in (low, high) and value not in (self.limits or ())
        below, above = self.place(value) <= EDGE, self.place(value) >= 1 - EDGE
        return (below and low not in (self.limits or ())) or (above and high not in (self.limits or ()))


def point_text(point: dict[str, Any]) -> str:
    """Write the values of a trial: ``lr=0.1, prox.mu=0.01``."""
    return ", ".join(f"{name}={value_to_text(name, value)}" for name, value in point.items())
