"""Numbers and lists as readable text."""

from __future__ import annotations

import re

from holdfast.comparison.score_text import NONE, ScoreText
from holdfast.comparison.study_schema import Study


def percent(value: float | None, digits: int = 1) -> str:
    """Return a fraction in percent.

    >>> percent(0.96378)
    '96.4 %'
    """
    return NONE if value is None else f"{100 * value:.{digits}f} %"


def score_text(study: Study) -> ScoreText:
    """Return how the scores of a study are written on its page."""
    return ScoreText(study.percent, 1, " %")


def minus(text: str) -> str:
    """Return a number with a proper minus sign.

    >>> minus("-1.2")
    '−1.2'
    """
    return text.replace("-", "−")


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


def wrapped(text: str, most: int = 28) -> list[str]:
    """Break a label into lines: after a plus, a comma or a space where that is enough, else within a word.

    >>> wrapped("fedbug(0.4)+feddyn(0.01), lr=0.1", 14)
    ['fedbug(0.4)+', 'feddyn(0.01),', 'lr=0.1']
    """
    lines = [""]
    for piece in re.split(r"(?<=[+ ])", text):
        whole = [piece[i : i + most] for i in range(0, len(piece), most)] if len(piece.rstrip()) > most else [piece]
        for part in whole:
            if lines[-1] and len((lines[-1] + part).rstrip()) > most:
                lines.append("")
            lines[-1] += part
    return [line.rstrip() for line in lines]
