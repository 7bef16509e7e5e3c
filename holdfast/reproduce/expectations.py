"""The tests that a claim implies, as a paper's file writes them: ``A > B``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ALL = "all"
FORM = "'A > B', 'A >= B', 'A > all' or 'A > number', of columns or of rows"
NEEDS = re.compile(r"all|most|all but (?P<spared>\d+)")


@dataclass(frozen=True)
class Expectation:
    """``A > B``: A is better than B. ``A > all``: than every other. ``A >= 0.99``: at least that good."""

    left: str
    ties: bool
    right: str

    @classmethod
    def parse(cls, text: str) -> Expectation:
        """Read a test; one that is malformed names no column, and the check of the paper's file refuses it."""
        match = re.fullmatch(r"(?P<left>.+?) (?P<sign>>=?) (?P<right>.+)", text)
        if not match:
            return cls(text, False, text)
        return cls(match["left"].strip(), match["sign"] == ">=", match["right"].strip())

    @property
    def bound(self) -> float | None:
        """The number that A must reach; None if A is compared with others."""
        try:
            return float(self.right)
        except ValueError:
            return None

    @property
    def names(self) -> set[str]:
        """The columns (or rows) that it names."""
        return {self.left} if self.right == ALL or self.bound is not None else {self.left, self.right}

    def met(self, mine: float, other: float) -> bool:
        """Return whether one score is enough better than another."""
        return mine >= other if self.ties else mine > other

    def rivals(self, names: Sequence[str]) -> list[str]:
        """Return what A is compared with."""
        if self.bound is not None:
            return []
        return [name for name in names if name != self.left] if self.right == ALL else [self.right]


def reaches(expect: Iterable[str], columns: Iterable[str], rows: Iterable[str]) -> list[str]:
    """Return the expectations whose columns (or rows) are all there.

    Args:
        expect: The expectations.
        columns: The columns that are there.
        rows: The rows.

    Returns:
        Those that can be tested.
    """
    across, down = set(columns), set(rows)
    return [text for text in expect if any(Expectation.parse(text).names <= there for there in (across, down))]
