"""Screening: every candidate gets the same few short runs, which tune its learning rate and its parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.advice.candidates import Candidate, Point
from holdfast.advice.trials import Trial, TrialOutcome, Trials

STEP = 3.0  # between neighbouring learning rates
DIGITS = 3  # of a learning rate
RATES = 3  # learning rates that are tried first
TRIALS = 5  # of each candidate: the rates, and two more


@dataclass(frozen=True)
class Screened:
    """A candidate after screening.

    Attributes:
        best: Its best point.
        score: The score there; None if every run diverged.
        cost: What a round of it costs, in the unit of the budget.
        at_edge: Whether the best learning rate is the smallest or largest that was tried.
    """

    best: Point
    score: float | None
    cost: float
    at_edge: bool


def screen(candidates: Sequence[Candidate], lr: float, rounds: int, seed: int, trials: Trials) -> list[Screened]:
    """Tune every candidate.

    Args:
        candidates: The candidates.
        lr: The learning rate in the middle of those that are tried.
        rounds: The rounds of a trial.
        seed: The seed of all trials.
        trials: Carries them out.

    Returns:
        Every candidate at its best point, in the same order.
    """
    first = [[Point(c, rounded(rate)) for rate in (lr / STEP, lr, lr * STEP)] for c in candidates]
    known = run_points(first, rounds, seed, trials)
    second = [further(points, outcomes) for points, outcomes in zip(first, known, strict=True)]
    more = run_points(second, rounds, seed, trials)
    return [judged([*first[i], *second[i]], [*known[i], *more[i]], rounds) for i in range(len(candidates))]


def run_points(groups: Sequence[Sequence[Point]], rounds: int, seed: int, trials: Trials) -> list[list[TrialOutcome]]:
    """Carry out a trial of every point, all at once.

    Args:
        groups: The points of each candidate.
        rounds: The rounds of a trial.
        seed: The seed of all trials.
        trials: Carries them out.

    Returns:
        The outcomes, in the same groups.
    """
    found = iter(trials.run([Trial(point, rounds, seed) for points in groups for point in points]))
    return [[next(found) for _ in points] for points in groups]


def further(points: Sequence[Point], outcomes: Sequence[TrialOutcome]) -> list[Point]:
    """Return the two points to try next: other values of the parameter, or learning rates nearer to the best one.

    >>> from holdfast.advice.candidates import Candidate
    >>> sgd, found = Candidate("fedavg", ""), [TrialOutcome(0.1, 1), TrialOutcome(0.5, 1), TrialOutcome(0.9, 1)]
    >>> [round(p.lr, 2) for p in further([Point(sgd, lr) for lr in (0.1, 0.3, 0.9)], found)]
    [1.56, 2.7]
    """
    best = best_of(points, outcomes)
    candidate, half = best.candidate, math.sqrt(STEP)
    if candidate.parameter:
        return [best._replace(value=value) for value in candidate.values]
    factors = (1 / half, half)
    if best == points[0]:
        factors = (1 / STEP, 1 / half)
    elif best == points[-1]:
        factors = (half, STEP)
    return [best._replace(lr=rounded(best.lr * factor)) for factor in factors]


def rounded(lr: float) -> float:
    """Return a learning rate as a person would write it.

    >>> rounded(0.1 * 3 * 3)
    0.9
    """
    return float(f"{lr:.{DIGITS}g}")


def best_of(points: Sequence[Point], outcomes: Sequence[TrialOutcome]) -> Point:
    """Return the point with the best score, the first of equals; one that diverged is worse than any other."""
    scores = [-math.inf if outcome.score is None else outcome.score for outcome in outcomes]
    return points[scores.index(max(scores))]


def judged(points: Sequence[Point], outcomes: Sequence[TrialOutcome], rounds: int) -> Screened:
    """Return a candidate at its best point.

    Args:
        points: All its points.
        outcomes: What they gave.
        rounds: The rounds of a trial.

    Returns:
        The screened candidate.
    """
    best = best_of(points, outcomes)
    rates = [point.lr for point in points]
    costs = [outcome.cost for outcome in outcomes if outcome.cost > 0]
    cost = sum(costs) / (rounds * max(1, len(costs)))
    return Screened(best, outcomes[points.index(best)].score, cost, best.lr in (min(rates), max(rates)))


def gains(screened: Sequence[Screened]) -> dict[str, float]:
    """Return how much each method gained on FedAvg, relative to the largest difference.

    Args:
        screened: FedAvg, and the others; those that diverged are left out.

    Returns:
        A share from -1 to 1 for every method.

    >>> from holdfast.advice.candidates import FEDAVG, Candidate
    >>> field = [(FEDAVG, 0.7), (Candidate("prox", ""), 0.8), (Candidate("nova", ""), 0.65)]
    >>> found = gains([Screened(Point(candidate, 0.1), score, 1.0, False) for candidate, score in field])
    >>> {method: round(gain, 2) for method, gain in found.items()}
    {'prox': 1.0, 'nova': -0.5}
    """
    baseline, *others = screened
    assert baseline.score is not None
    gaps = {s.best.candidate.method: s.score - baseline.score for s in others if s.score is not None}
    scale = max(map(abs, gaps.values()), default=0.0) or 1.0
    return {method: gap / scale for method, gap in gaps.items()}
