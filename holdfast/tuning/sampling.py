"""Which values a trial tries: a pure function of the seed, the number of the trial and the scores that came before.

A fresh Optuna sampler is seeded for every trial, so that a search that is killed and resumed proposes what it would
have proposed. Trials are proposed in batches of a fixed size, each of which knows the scores of those before it: the
number of processes that run a batch changes nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.comparison.study_schema import MetricFacts
from holdfast.core.errors import HoldfastError
from holdfast.core.rng import numbers
from holdfast.tuning.optuna_package import optuna_package
from holdfast.tuning.search_axis import SearchAxis

SAMPLERS = ("tpe", "grid", "random")
STARTUP = 10  # random trials before the tree-structured Parzen estimator learns from scores
BATCH = 4  # trials that it proposes at a time


@dataclass(frozen=True)
class Tried:
    """A trial as later ones see it.

    Attributes:
        point: Its values by name.
        scores: Its scores by round; None where it diverged.
    """

    point: dict[str, Any]
    scores: dict[int, float | None] = field(default_factory=dict)


def batches(trials: int, sampler: str) -> list[range]:
    """Return the numbers of the trials that are proposed together.

    >>> batches(16, "tpe"), batches(16, "random")
    ([range(0, 10), range(10, 14), range(14, 16)], [range(0, 16)])
    """
    if sampler != "tpe":
        return [range(trials)]
    starts = [0, *range(STARTUP, trials, BATCH)]
    return [range(start, min(end, trials)) for start, end in zip(starts, [*starts[1:], trials], strict=True)]


@dataclass(frozen=True)
class Proposer:
    """Proposes the trials of a method.

    Attributes:
        axes: What is searched.
        sampler: ``tpe``, ``grid`` or ``random``.
        seed: The seed of the search.
        metric: Which scores are better.
    """

    axes: Sequence[SearchAxis]
    sampler: str
    seed: int
    metric: MetricFacts

    def propose(self, number: int, seen: Sequence[Tried], trials: int) -> dict[str, Any]:
        """Return the values of a trial. The first one, except of a grid, has the usual values.

        Args:
            number: The number of the trial.
            seen: The trials of earlier batches.
            trials: How many trials there will be.

        Returns:
            The values by name.
        """
        if self.sampler == "grid":
            return grid(self.axes, trials)[number]
        drawn = self._drawn(number, seen)
        usual = {a.name: a.usual for a in self.axes if number == 0 and a.holds(a.usual)}
        return {a.name: a.shortened(drawn[a.name]) for a in self.axes} | usual

    def _drawn(self, number: int, seen: Sequence[Tried]) -> dict[str, Any]:
        optuna = optuna_package()
        seed = int(numbers(self.seed, number))
        random = self.sampler == "random" or len(seen) < STARTUP
        sampler = optuna.samplers.RandomSampler(seed=seed) if random else optuna.samplers.TPESampler(seed=seed)
        found = study_of([] if random else seen, self.axes, self.metric, sampler).ask(distributions(self.axes))
        return {a.name: found.params[a.name] for a in self.axes}


def distributions(axes: Sequence[SearchAxis]) -> dict[str, Any]:
    """Return the axes as Optuna has them."""
    kinds = optuna_package().distributions

    def distribution(axis: SearchAxis) -> Any:
        if axis.values is not None:
            return kinds.CategoricalDistribution(axis.values)
        low, high = axis.ends
        if axis.whole:
            return kinds.IntDistribution(int(low), int(high), log=axis.log)
        return kinds.FloatDistribution(low, high, log=axis.log)

    return {axis.name: distribution(axis) for axis in axes}


def study_of(tried: Sequence[Tried], axes: Sequence[SearchAxis], metric: MetricFacts, sampler: Any = None) -> Any:
    """Return an Optuna study in memory.

    Its trials count as pruned at the last rung that they reached, by which Optuna ranks those that got further higher;
    one that diverged has no score there.

    Args:
        tried: The trials.
        axes: What is searched.
        metric: Which scores are better.
        sampler: What proposes more of them.

    Returns:
        The study.
    """
    optuna = optuna_package()
    study = optuna.create_study(sampler=sampler, direction=direction(metric))
    for trial in tried:
        scores = {rung: math.nan if s is None else s for rung, s in trial.scores.items()}
        state = optuna.trial.TrialState.PRUNED
        study.add_trial(
            optuna.trial.create_trial(
                state=state, params=trial.point, distributions=distributions(axes), intermediate_values=scores
            )
        )
    return study


def direction(metric: MetricFacts) -> str:
    """Return Optuna's word for the direction of a metric."""
    return "maximize" if metric.higher_is_better else "minimize"


def grid(axes: Sequence[SearchAxis], trials: int) -> list[dict[str, Any]]:
    """Return the finest even grid with at most this many points.

    >>> from holdfast.tuning.search_axis import SearchAxis
    >>> grid([SearchAxis("lr", 0.1, 0.01, 1.0, log=True), SearchAxis("batch", 32, values=[16, 32])], 7)[:3]
    [{'lr': 0.01, 'batch': 16}, {'lr': 0.01, 'batch': 32}, {'lr': 0.1, 'batch': 16}]
    """
    if size(axes, 2) > trials:
        raise HoldfastError(
            f"a grid of two values for each of {', '.join(a.name for a in axes)} has {size(axes, 2)} trials, more than "
            f"{trials}: allow more --trials, or set some of them"
        )
    points = max(points for points in range(2, trials + 1) if size(axes, points) <= trials)
    lists = [axis.grid(points) for axis in axes]
    return [dict(zip([a.name for a in axes], values, strict=True)) for values in itertools.product(*lists)]


def size(axes: Sequence[SearchAxis], points: int) -> int:
    """Return the number of points of a grid."""
    return math.prod(len(axis.grid(points)) for axis in axes)
