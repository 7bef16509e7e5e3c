"""The race: FedAvg is tuned first, then the field; the worse ones fall out; the winner must beat FedAvg on fresh seeds.

Everything here follows from the outcomes of trials alone, which are kept on disk. A race that is started again reads
them, decides the same, and goes on with the first trial that is missing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.advice.budget import Budget
from holdfast.advice.candidates import BASELINE, Candidate, Point
from holdfast.advice.elimination import LEAST, chance, worse
from holdfast.advice.screening import TRIALS, Screened, screen
from holdfast.advice.trials import Trial, TrialOutcome, Trials
from holdfast.core.errors import HoldfastError

FRESH = 1000  # the first seed of the confirmation, above that of the race: no choice has seen these


@dataclass(frozen=True)
class Rules:
    """How a race is run.

    Attributes:
        rounds: The rounds of the training that is wanted.
        seed: The seed of the screening; the seeds of the race follow it.
        lr: The learning rate around which FedAvg is tuned.
        level: The probability of recommending a method that is not better than FedAvg.
        screened: The share of the budget by the end of the screening.
        raced: The share of it by the end of the race; the rest confirms.
        looks: The most seeds of the race.
        survivors: The most candidates that are raced, FedAvg included.
        fresh: The fewest and the most seeds of the confirmation.
        dearer: What a round of another method is assumed to cost before it was run, in rounds of FedAvg.
    """

    rounds: int
    seed: int = 0
    lr: float = 0.1
    level: float = 0.05
    screened: float = 0.45
    raced: float = 0.7
    looks: int = 8
    survivors: int = 6
    fresh: tuple[int, int] = (5, 20)
    dearer: float = 1.5

    @property
    def short(self) -> int:
        """The rounds of a trial of the screening."""
        return max(2, self.rounds // 3)

    def refuse_too_small(self, budget: Budget, cost: float = 1.0) -> None:
        """Raise an error if a budget is too small for two methods beside FedAvg, and the fewest seeds.

        Args:
            budget: The budget.
            cost: What a round of FedAvg costs; 1 where rounds are counted.
        """
        screening = TRIALS * self.short * (1 + 2 * self.dearer)
        race = (LEAST + self.fresh[0]) * self.rounds * (1 + self.dearer)
        least = cost * (screening + race)
        if least > budget.amount:
            raise HoldfastError(
                f"a budget of {budget.text()} is too small: a race of {self.rounds} rounds on this data takes about "
                f"{budget.text(least)}; raise --budget, or lower --rounds"
            )


@dataclass(frozen=True)
class Raced:
    """A candidate in the race.

    Attributes:
        point: Where it raced.
        scores: Its scores, seed by seed.
        out: After how many seeds it fell out; None if it did not.
    """

    point: Point
    scores: list[float]
    out: int | None = None


@dataclass(frozen=True)
class RaceResult:
    """What a race found.

    Attributes:
        baseline: FedAvg at its best point.
        screened: Every candidate of the screening, FedAvg first.
        raced: The candidates of the race, the leader first.
        fresh: The seeds of the confirmation; empty if FedAvg leads.
        chance: The one-sided p-value of the confirmation on validation data; None if there was none.
        recommended: Whether the leader is better than FedAvg with confidence.
        spent: What all trials cost.
    """

    baseline: Point
    screened: list[Screened]
    raced: list[Raced]
    fresh: list[int]
    chance: float | None
    recommended: bool
    spent: float

    @property
    def leader(self) -> Point:
        """Who leads after the race."""
        return self.raced[0].point


@dataclass
class Race:
    """A race in progress.

    Attributes:
        rules: How it is run.
        field: The candidates, FedAvg first; the most promising ones come next.
        budget: What it may cost.
        trials: Carries out the trials.
        say: Told what the race is doing.
        spent: What the trials have cost so far.
    """

    rules: Rules
    field: Sequence[Candidate]
    budget: Budget
    trials: Trials
    say: Callable[[str], None] = lambda text: None
    spent: float = 0.0

    def run(self, trials: Sequence[Trial]) -> list[TrialOutcome]:
        """Carry out trials and count what they cost."""
        outcomes = self.trials.run(trials)
        self.spent += sum(outcome.cost for outcome in outcomes)
        return outcomes

    def result(self) -> RaceResult:
        """Run the race to its end."""
        baseline = self._tuned_baseline()
        screened = [baseline, *self._screened(baseline)]
        raced = self._raced(self._survivors(screened))
        leader = raced[0].point
        if leader.candidate.method == BASELINE:
            return RaceResult(baseline.best, screened, raced, [], None, False, self.spent)
        fresh, p = self._confirmed(leader, baseline.best, {s.best: s.cost for s in screened})
        return RaceResult(baseline.best, screened, raced, fresh, p, p < self.rules.level, self.spent)

    def _tuned_baseline(self) -> Screened:
        rules = self.rules
        self.say(f"tuning FedAvg: {TRIALS} runs of {rules.short} rounds")
        (found,) = screen(self.field[:1], rules.lr, rules.short, rules.seed, self)
        if found.score is None:
            raise HoldfastError(
                f"FedAvg diverged at every learning rate around {rules.lr:g}: choose a smaller --lr to start from, or "
                "add --clip"
            )
        rules.refuse_too_small(self.budget, found.cost)
        return found

    def _screened(self, baseline: Screened) -> list[Screened]:
        rules = self.rules
        each = TRIALS * rules.short * baseline.cost * rules.dearer
        left = rules.screened * self.budget.amount - self.spent
        chosen = self.field[1 : 1 + max(2, int(left // each))]
        self.say(
            f"screening {len(chosen)} of {len(self.field) - 1} methods: {TRIALS} runs of {rules.short} rounds each"
        )
        return screen(chosen, baseline.best.lr, rules.short, rules.seed, self)

    def _survivors(self, screened: Sequence[Screened]) -> list[Screened]:
        """Return FedAvg and the best others, as many as can be raced with a few seeds."""
        rules = self.rules
        baseline, others = screened[0], [s for s in screened[1:] if s.score is not None]
        others.sort(key=lambda s: -(s.score or 0.0))
        left = rules.raced * self.budget.amount - self.spent
        chosen = [baseline]
        for s in others:
            seed = rules.rounds * sum(one.cost for one in (*chosen, s))
            if len(chosen) > 1 and (len(chosen) == rules.survivors or LEAST * seed > left):
                break
            chosen.append(s)
        return chosen

    def _raced(self, survivors: Sequence[Screened]) -> list[Raced]:
        """Race seed by seed, until the budget of the race is spent or one is left; the leader comes first."""
        rules = self.rules
        costs = {s.best: s.cost * rules.rounds for s in survivors}
        alive, out = list(costs), list[Raced]()
        scores: dict[Point, list[float]] = {point: [] for point in alive}
        for look in range(1, rules.looks + 1):
            seed = sum(costs[point] for point in alive)
            if look > LEAST and self.spent + seed > rules.raced * self.budget.amount:
                break
            self.say(f"race, seed {look}: {len(alive)} methods, {rules.rounds} rounds each")
            outcomes = self.run([Trial(point, rules.rounds, rules.seed + look) for point in alive])
            for point, outcome in zip(list(alive), outcomes, strict=True):
                if outcome.score is None:
                    alive.remove(point)
                    out.append(Raced(point, scores.pop(point), look))
                else:
                    scores[point].append(outcome.score)
            lost = worse({point.label: own for point, own in scores.items()}, rules.level, rules.looks)
            for point in [point for point in alive if point.label in lost]:
                alive.remove(point)
                out.append(Raced(point, scores.pop(point), look))
            if len(alive) < 2:
                break
        if not alive:
            raise HoldfastError("every method diverged in the race, FedAvg too: choose a smaller --lr, or add --clip")
        left = sorted(alive, key=lambda point: -statistics.fmean(scores[point]))
        return [*(Raced(point, scores[point]) for point in left), *reversed(out)]

    def _confirmed(self, leader: Point, baseline: Point, costs: dict[Point, float]) -> tuple[list[int], float]:
        """Compare the leader with FedAvg on fresh seeds; return the seeds and the p-value."""
        rules = self.rules
        pair = rules.rounds * (costs[leader] + costs[baseline])
        least, most = rules.fresh
        many = min(most, max(least, int((self.budget.amount - self.spent) // pair)))
        seeds = [rules.seed + FRESH + i for i in range(many)]
        self.say(f"confirming {leader.label} against FedAvg on {many} fresh seeds")
        outcomes = self.run([Trial(point, rules.rounds, seed) for seed in seeds for point in (leader, baseline)])
        gaps = list[float]()
        for own, other in zip(outcomes[::2], outcomes[1::2], strict=True):
            if own.score is None:
                return seeds, 1.0  # a method that diverges is not recommended
            if other.score is not None:
                gaps.append(own.score - other.score)
        return seeds, chance(gaps)
