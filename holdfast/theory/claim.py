"""A claim of a paper, and what a computation finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """One row of ``holdfast theory``. A claim that does not hold is a finding, and is shown like any other."""

    text: str  # the claim in one sentence, with the number of its equation
    expected: float | str
    found: float
    holds: bool
    note: str = ""


def equal(text: str, expected: float, found: float, within: float, note: str = "") -> Claim:
    """A claim that a number has a value, up to ``within``."""
    return Claim(text, expected, found, abs(found - expected) <= within, note)


def below(text: str, bound: float, found: float, note: str = "") -> Claim:
    """A claim that a number is at most ``bound``."""
    return Claim(text, f"≤ {shown(bound)}", found, found <= bound, note)


def above(text: str, bound: float, found: float, note: str = "") -> Claim:
    """A claim that a number is at least ``bound``."""
    return Claim(text, f"≥ {shown(bound)}", found, found >= bound, note)


def shown(value: float | str) -> str:
    """A number in four digits.

    >>> shown(0.66666), shown(90), shown(1.4e-15)
    ('0.6667', '90', '1.4e-15')
    """
    return value if isinstance(value, str) else f"{value:.4g}"
