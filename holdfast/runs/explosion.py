"""Whether a run exploded: its training loss grew to ten times that of the start and stayed there for three rounds.

The first round's loss stands for the start, or the loss of guessing where that is lower: with a learning rate far too
high the first round has exploded itself, since its loss is a mean over all local steps. A run that exploded goes on
and ends normally, unlike one that diverged, whose updates are all NaN or infinite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.method.method import Method

FACTOR = 10  # times the loss of the start
ROUNDS = 3  # in a row
RULE = f"for {ROUNDS} rounds in a row the training loss was above {FACTOR} times that of the start"


def exploded(losses: Sequence[float | None], guessing: float | None = None) -> int | None:
    """Return the round that completed the first explosion, or None.

    Args:
        losses: The training loss of every round. One that is not finite, which the history stores as None, counts as
            too large.
        guessing: The loss of a model that guesses, if it is known.

    Returns:
        The last of the rounds in a row.

    >>> exploded([2.0, 19.0, 21.0, 30.0, 40.0])
    5
    >>> exploded([2.0, 21.0, 30.0, 1.0, 40.0]) is None
    True
    >>> exploded([1e9, 1e9, 1e9], guessing=2.3)
    3
    """
    known = [loss for loss in (*losses[:1], guessing) if loss is not None and loss > 0]
    limit = FACTOR * min(known, default=math.inf)
    in_a_row = 0
    for number, loss in enumerate(losses, start=1):
        large = loss is None or not math.isfinite(loss) or loss > limit
        in_a_row = in_a_row + 1 if large else 0
        if in_a_row == ROUNDS:
            return number
    return None


def loss_of_guessing(method: Method, federation: Federation) -> float | None:
    """Return the cross-entropy of equal chances for all classes or tokens; None where the loss is another one."""
    task, outputs = federation.data.task, federation.classes
    guessed = task.name in ("classification", "next-token") and federation.weight is None
    return math.log(outputs) if guessed and outputs > 1 and not method.single("task_loss") else None


def explanation(round: int) -> str:
    """Say in one line what happened up to a round, and what to do."""
    return f"exploded by round {round}: {RULE}; lower --lr, or add --clip"
