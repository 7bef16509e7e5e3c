"""Rounds in which the training loss jumps: to more than three times the median of the five rounds before.

A jump is worth a look, and a reason to go back to the best checkpoint. A run that exploded (``explosion.py``) has
jumped and not come back.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

FACTOR = 3.0  # times the median of the rounds before
WINDOW = 5  # of how many rounds
FEWEST = 3  # losses, below which a median says nothing


def jump(losses: Sequence[float | None]) -> float | None:
    """Return how many times the usual loss the last one is if it jumped; None if it did not.

    Args:
        losses: The training losses so far; one that is not finite is None.

    >>> jump([2.0, 1.0, 1.0, 4.0]), jump([2.0, 1.0, 1.0, 2.0]), jump([1.0, 1.0, 9.0])
    (4.0, None, None)
    """
    *before, last = losses
    known = [loss for loss in before[-WINDOW:] if loss is not None and math.isfinite(loss)]
    if last is None or len(known) < FEWEST:
        return None
    usual = statistics.median(known)
    return last / usual if usual > 0 and last > FACTOR * usual else None


def jumps(losses: Sequence[float | None]) -> list[int]:
    """Return the places, from 1, of all losses that jumped.

    >>> jumps([1.0, 1.0, 1.0, 5.0, 1.0, 5.0])
    [4, 6]
    """
    return [end for end in range(1, len(losses) + 1) if jump(losses[:end]) is not None]
