"""Successive halving: all trials run to a first rung, the best of them continue to the next, until a few finish.

How many trials reach each rung is fixed beforehand, so that every method gets exactly the same number of rounds, and
the order in which trials end changes nothing. The best of learning curves that do not cross after the first rung is the
best at every rung, and therefore never dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from holdfast.comparison.study_schema import MetricFacts

CUTS = 2  # rungs before the last round
Score = Callable[[int, int], float | None]  # of a trial at a rung; None if it diverged


@dataclass(frozen=True)
class Halving:
    """How many trials run how far.

    Attributes:
        trials: The trials of a method.
        rungs: The rounds at which trials are compared; the last is the end of a run.
        factor: Of so many trials at a rung, one continues.
    """

    trials: int
    rungs: tuple[int, ...]
    factor: int

    @property
    def entrants(self) -> list[int]:
        """How many trials run to each rung.

        >>> Halving(27, (4, 10, 30), 3).entrants, Halving(2, (4, 10, 30), 3).entrants
        ([27, 9, 3], [2, 1, 1])
        """
        return [max(1, self.trials // self.factor**i) for i in range(len(self.rungs))]

    @property
    def rounds(self) -> int:
        """The rounds of all trials together.

        >>> Halving(27, (4, 10, 30), 3).rounds
        222
        """
        starts = (0, *self.rungs)
        return sum(n * (end - start) for n, start, end in zip(self.entrants, starts, self.rungs, strict=False))

    def stages(self, score: Score, metric: MetricFacts) -> Iterator[tuple[int, list[int]]]:
        """Yield a rung and the numbers of the trials that run to it, one stage after the other.

        Args:
            score: Asked for the scores at a rung after its stage was yielded.
            metric: Which scores are better.

        Yields:
            The round of the rung, and the numbers of the trials.
        """
        numbers = list(range(self.trials))
        for i, rung in enumerate(self.rungs):
            if i:
                numbers = sorted(best(numbers, self.rungs[i - 1], score, metric)[: self.entrants[i]])
            if not numbers:  # all diverged
                return
            yield rung, numbers


def best(numbers: Sequence[int], rung: int, score: Score, metric: MetricFacts) -> list[int]:
    """Return trials that have a score at a rung, the best first; of equal ones the one that was started first."""
    found = [(value, n) for n in numbers if (value := score(n, rung)) is not None]
    sign = -1 if metric.higher_is_better else 1
    return [n for _, n in sorted(found, key=lambda pair: (sign * pair[0], pair[1]))]


def rungs_of(rounds: int, factor: int, eval_every: int) -> tuple[int, ...]:
    """Return the rungs of runs of some length: a ninth, a third and all of their rounds, for a factor of 3.

    >>> rungs_of(30, 3, 1), rungs_of(30, 3, 4), rungs_of(2, 3, 1), rungs_of(30, 1, 1)
    ((4, 10, 30), (4, 12, 30), (1, 2), (30,))
    """
    if factor == 1:
        return (rounds,)
    shares = [-(-rounds // factor**cut) for cut in range(CUTS, 0, -1)]
    evaluated = [-(-share // eval_every) * eval_every for share in shares]
    return tuple(sorted({rung for rung in evaluated if rung < rounds} | {rounds}))


def trials_within(budget: int, rungs: tuple[int, ...], factor: int) -> int:
    """Return the most trials whose rounds fit into a budget; 0 if not even one does.

    >>> trials_within(222, (4, 10, 30), 3), trials_within(30, (4, 10, 30), 3), trials_within(29, (4, 10, 30), 3)
    (27, 1, 0)
    """
    trials = 0
    while Halving(trials + 1, rungs, factor).rounds <= budget:
        trials += 1
    return trials
