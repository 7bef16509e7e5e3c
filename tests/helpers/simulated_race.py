"""Races on simulated scores: what a trial gives follows from a method's true score, a common and an own random part."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.advice.budget import Budget
from holdfast.advice.candidates import BASELINE, FEDAVG, Candidate
from holdfast.advice.race import Race, RaceResult, Rules
from holdfast.advice.trials import Trial, TrialOutcome


@dataclass
class SimulatedTrials:
    """Scores without training.

    Attributes:
        truth: Every method's true score.
        own: The standard deviation of a run's own random part.
        common: That of what all runs of a seed share, which pairing removes.
        setting: That of what a setting adds, so that tuning chooses by something.
        salt: Makes one simulated world differ from another.
        ran: Every trial that was carried out.
    """

    truth: Mapping[str, float]
    own: float = 0.01
    common: float = 0.03
    setting: float = 0.0
    salt: int = 0
    ran: list[Trial] = field(default_factory=list)

    def run(self, trials: Sequence[Trial]) -> list[TrialOutcome]:
        self.ran += trials
        return [TrialOutcome(self.score(trial), trial.rounds) for trial in trials]

    def score(self, trial: Trial) -> float:
        point = trial.point
        shared = self.normal("seed", trial.seed) * self.common
        own = self.normal("run", trial.seed, trial.rounds, point.method, point.lr) * self.own
        tuned = self.normal("setting", point.method, point.lr) * self.setting
        return self.truth[point.candidate.method] + shared + own + tuned

    def normal(self, *what: object) -> float:
        digest = hashlib.sha256(repr((self.salt, *what)).encode()).digest()
        return random.Random(digest).gauss(0, 1)


def simulated(
    gains: Sequence[float], salt: int, budget: float = 4000, **noise: float
) -> tuple[RaceResult, SimulatedTrials]:
    """Race methods that are this much better than FedAvg, and return the result with what was run."""
    field = [FEDAVG, *(Candidate(f"prox({i + 1})", "") for i in range(len(gains)))]
    truth = {BASELINE: 0.7} | {c.method: 0.7 + gain for c, gain in zip(field[1:], gains, strict=True)}
    trials = SimulatedTrials(truth, salt=salt, **noise)
    return Race(Rules(rounds=30), field, Budget(budget, in_rounds=True), trials).result(), trials
