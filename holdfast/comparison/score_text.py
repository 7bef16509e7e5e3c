"""Scores as text: percentages with fixed decimals, other numbers with significant digits."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.comparison.study_schema import PairedDifference, Spread

NONE = "–"


@dataclass(frozen=True)
class ScoreText:
    """How the scores of a metric are written.

    Attributes:
        percent: Whether they are fractions that are shown in percent.
        digits: The decimals of a percentage.
        sign: What follows a percentage.
    """

    percent: bool
    digits: int = 2
    sign: str = ""

    def value(self, score: float | None) -> str:
        """Write a score.

        >>> ScoreText(True).value(0.92814), ScoreText(True, 1, " %").value(0.92814), ScoreText(False).value(54.3219)
        ('92.81', '92.8 %', '54.32')
        """
        if score is None:
            return NONE
        return f"{100 * score:.{self.digits}f}{self.sign}" if self.percent else significant(score, 4)

    def spread(self, found: Spread) -> str:
        """Write mean and standard deviation.

        >>> ScoreText(True, 1, " %").spread(Spread(0.928, 0.017, [])), ScoreText(False).spread(Spread(5.0, 0.123, []))
        ('92.8 ± 1.7 %', '5.000 ± 0.12')
        """
        if found.mean is None or found.std is None:
            return self.value(found.mean)
        if self.percent:
            return f"{100 * found.mean:.{self.digits}f} ± {100 * found.std:.{self.digits}f}{self.sign}"
        return f"{significant(found.mean, 4)} ± {significant(found.std, 2)}"

    def difference(self, gap: float | None) -> str:
        """Write a difference of two scores, with its sign; of percentages in points.

        >>> ScoreText(True).difference(-0.0123), ScoreText(False).difference(0.5)
        ('-1.23', '+0.500')
        """
        if gap is None:
            return NONE
        return f"{100 * gap:+.{self.digits}f}" if self.percent else ("+" if gap >= 0 else "") + significant(gap, 3)

    def interval(self, d: PairedDifference) -> str:
        """Write the interval of a difference."""
        if d.low is None or d.high is None:
            return NONE
        return f"[{self.difference(d.low)}, {self.difference(d.high)}]"

    def target(self, score: float) -> str:
        """Write a score to reach, as short as it can be.

        >>> ScoreText(True, sign="%").target(0.475), ScoreText(False).target(36.0)
        ('47.5%', '36')
        """
        return f"{100 * score:g}{self.sign}" if self.percent else f"{score:g}"


def significant(value: float, digits: int) -> str:
    """Write a number with this number of significant digits; those of a whole part are never cut.

    >>> [significant(v, 4) for v in (1234567.0, 1234.56, 54.3219, 0.00123456)], significant(123.4, 2)
    (['1,234,567', '1,235', '54.32', '0.001235'], '123')
    """
    return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:#.{digits}g}"
