"""Which row of a step trains which client when, so that no step is taken with rows that have nothing to do.

The number of steps of every client is known before the first one. A client may move to another row between two steps:
then a schedule exists that is as long as the longest client, or as long as all clients' steps fill all rows, whichever
is more. McNaughton's rule finds it: fill the rows one after the other; a client that does not fit into the rest of a
row takes its last steps there, and its first ones at the beginning of the next row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# A step takes as long as its number of rows and this many more: half rows, so that the rule computes in whole numbers.
OVERHEAD_IN_HALF_ROWS = 5


class Stretch(NamedTuple):
    """Steps that a client takes in one row without interruption."""

    client: int
    row: int
    start: int  # the steps of the schedule before it
    first: int  # the steps that the client has taken before
    steps: int

    @property
    def end(self) -> int:
        return self.start + self.steps


def length(steps: Sequence[int], width: int) -> int:
    """Return the fewest steps of ``width`` rows in which clients with these numbers of steps can be trained.

    >>> length([230, 100, 100], 2)
    230
    """
    return shortest(max(steps), sum(steps), width)


def shortest(longest: int, all: int, width: int) -> int:
    """Return the same from the longest client's steps and those of all clients together."""
    return max(longest, -(-all // width))


def schedule(steps: Sequence[int], width: int) -> list[Stretch]:
    """Distribute clients over the rows of a step.

    Args:
        steps: The steps of each client.
        width: The number of rows.

    Returns:
        Who trains where and when, row by row, in ``length(steps, width)`` steps.

    >>> [tuple(s) for s in schedule([2, 2, 2], 2)]
    [(0, 0, 0, 0, 2), (1, 0, 2, 1, 1), (1, 1, 0, 0, 1), (2, 1, 1, 0, 2)]
    """
    total, row, at = length(steps, width), 0, 0
    found: list[Stretch] = []
    for client, wanted in enumerate(steps):
        here = min(wanted, total - at)
        found += [Stretch(client, row, at, wanted - here, here)] if here else []
        at += here
        if at == total:
            row, at = row + 1, wanted - here
            found += [Stretch(client, row, 0, 0, at)] if at else []
    return found


def cut(stretches: Sequence[Stretch], every: Sequence[int]) -> list[Stretch]:
    """Cut stretches where a client has taken a multiple of ``every[client]`` steps: where its epochs begin."""
    found: list[Stretch] = []
    for s in stretches:
        done, last = s.first, s.first + s.steps
        while done < last:
            stop = min(last, (done // every[s.client] + 1) * every[s.client])
            found.append(s._replace(start=s.start + done - s.first, first=done, steps=stop - done))
            done = stop
    return found


def best_width(rounds: Sequence[Sequence[int]], most: int) -> int:
    """Return the number of rows with which rounds are expected to take the least time.

    Args:
        rounds: The steps of each client in each of some rounds.
        most: The most rows that fit into memory.

    Returns:
        The number of rows, at most that of the largest cohort.

    >>> best_width([[100] * 10], 99), best_width([[230, 110, 110] + [50] * 11], 99)
    (10, 4)
    """
    work = [(max(steps), sum(steps)) for steps in rounds]
    widths = range(1, min(most, max(map(len, rounds))) + 1)
    return min(widths, key=lambda w: ((OVERHEAD_IN_HALF_ROWS + 2 * w) * sum(shortest(*each, w) for each in work), w))
