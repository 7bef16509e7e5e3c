"""A claim of a paper, and the result of computing it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """One row of ``holdfast theory``. A claim that does not hold is a result, and is shown like any other.

    Attributes:
        text: The claim in one sentence, with the number of its equation.
        expected: What the paper says.
        found: What we compute.
        holds: Whether they agree.
        note: A remark.
    """

    text: str
    expected: float | str
    found: float
    holds: bool
    note: str = ""


def equal(text: str, expected: float, found: float, within: float, note: str = "") -> Claim:
    """Claim that a number has a value.

    Args:
        text: The claim.
        expected: The value.
        found: The number that was computed.
        within: The largest difference that counts as equal.
        note: A remark.

    Returns:
        The claim, judged.
    """
    return Claim(text, expected, found, abs(found - expected) <= within, note)


def below(text: str, bound: float, found: float, note: str = "") -> Claim:
    """Claim that a number is at most ``bound``; the other arguments are those of ``equal``."""
    return Claim(text, f"≤ {shown(bound)}", found, found <= bound, note)


def above(text: str, bound: float, found: float, note: str = "") -> Claim:
    """Claim that a number is at least ``bound``; the other arguments are those of ``equal``."""
    return Claim(text, f"≥ {shown(bound)}", found, found >= bound, note)


def shown(value: float | str) -> str:
    """Return a number with four digits.

    >>> shown(0.66666), shown(90), shown(1.4e-15)
    ('0.6667', '90', '1.4e-15')
    """
    return value if isinstance(value, str) else f"{value:.4g}"
