"""Numbers and lists as readable text."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.comparison.study_schema import Spread
from holdfast.comparison.tables import NONE


def percent(value: float | None, digits: int = 1) -> str:
    """Return a fraction in percent.

    >>> percent(0.96378)
    '96.4 %'
    """
    return NONE if value is None else f"{100 * value:.{digits}f} %"


def points(value: float) -> str:
    """Return a difference of two percentages, with its sign.

    >>> points(-0.0123)
    '−1.2'
    """
    return f"{100 * value:+.1f}".replace("-", "−")


def plus_minus(spread: Spread) -> str:
    """Return mean and standard deviation of fractions, in percent."""
    if spread.mean is None:
        return NONE
    return percent(spread.mean) if spread.std is None else f"{100 * spread.mean:.1f} ± {100 * spread.std:.1f} %"


def seconds(value: float | None) -> str:
    """Return a duration in a suitable unit.

    >>> [seconds(s) for s in (0.25, 3.0, 42.2, 250, 9000)]
    ['0.25 s', '3.0 s', '42 s', '4.2 min', '2.5 h']
    """
    if value is None:
        return NONE
    if value < 100:
        return f"{value:.{0 if value >= 10 else 1 if value >= 1 else 2}f} s"
    return f"{value / 60:.1f} min" if value < 6000 else f"{value / 3600:.1f} h"


def traffic(value: float | None) -> str:
    """Return a number of bytes in a suitable unit.

    >>> [traffic(b) for b in (500, 66_200_000, 2_340_000_000)]
    ['0.5 kB', '66 MB', '2.3 GB']
    """
    if value is None:
        return NONE
    size, unit = next((s for s in ((1e9, "GB"), (1e6, "MB")) if value >= s[0]), (1e3, "kB"))
    return f"{value / size:.{0 if value >= 10 * size else 1}f} {unit}"


def count(value: float | None) -> str:
    return NONE if value is None else f"{value:.0f}" if value == round(value) else f"{value:.1f}"


def plural(number: int, noun: str) -> str:
    """Return a number of things.

    >>> plural(1, "seed"), plural(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{number} {noun}{'s' * (number != 1)}"


def figure(value: float | None) -> str:
    """Return a number with three significant digits, or without decimals if it is large.

    >>> figure(40188.93), figure(14.62)
    ('40 189', '14.6')
    """
    if value is None:
        return NONE
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 100 else f"{value:.3g}"


def p_value(p: float) -> str:
    """Return a p-value that is never broken across lines.

    >>> p_value(0.00001).split(), p_value(0.0312).split()
    (['p', '<', '0.001'], ['p', '=', '0.031'])
    """
    return (
        "p\N{NO-BREAK SPACE}<\N{NO-BREAK SPACE}0.001" if p < 0.001 else f"p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{p:.2g}"
    )


def listed(names: Sequence[str], most: int = 4) -> str:
    """Return names as a list in a sentence.

    >>> listed(["a", "b", "c"]), listed(["a", "b", "c", "d", "e", "f"])
    ('a, b and c', 'a, b, c and 3 more')
    """
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def shorten(text: str, most: int = 32) -> str:
    """Cut a text that is too long.

    >>> shorten("fedbug(0.4)+feddyn(0.01)", 12)
    'fedbug(0.4)…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"
