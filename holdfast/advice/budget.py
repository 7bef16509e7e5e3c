"""What a race may cost: time, or rounds of training."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.core.errors import HoldfastError

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Budget:
    """An amount of seconds or of rounds.

    Attributes:
        amount: How many.
        in_rounds: Whether rounds are counted, so that a race is the same on every machine; otherwise seconds.
    """

    amount: float
    in_rounds: bool = False

    def text(self, amount: float | None = None) -> str:
        """Return an amount in this unit as a person writes it.

        >>> Budget(90).text(), Budget(7200).text(), Budget(500, in_rounds=True).text(1200)
        ('90s', '2h', '1200 rounds')
        """
        many = self.amount if amount is None else amount
        if self.in_rounds:
            return f"{many:.0f} rounds"
        for unit in ("d", "h", "m"):
            if many >= 2 * SECONDS[unit]:
                return f"{many / SECONDS[unit]:.3g}{unit}"
        return f"{many:.3g}s"


def read_budget(text: str) -> Budget:
    """Read a budget such as ``10m``, ``2h`` or ``500 rounds``.

    >>> read_budget("10m"), read_budget("500 rounds")
    (Budget(amount=600.0, in_rounds=False), Budget(amount=500.0, in_rounds=True))
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|h|d|rounds)\s*", text)
    if found is None or float(found[1]) == 0:
        raise HoldfastError(
            f"budget {text!r}: expected a time such as 90s, 10m or 2h, or a number of rounds: '500 rounds'"
        )
    if found[2] == "rounds":
        return Budget(float(found[1]), in_rounds=True)
    return Budget(float(found[1]) * SECONDS[found[2]])
