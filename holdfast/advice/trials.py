"""A trial: one run of a candidate at one point. What a race asks for, and how it is carried out and kept."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from holdfast.advice.budget import Budget
from holdfast.advice.candidates import Point
from holdfast.advice.trial_costs import TrialCosts
from holdfast.comparison.executor import Executor
from holdfast.comparison.labels import slug
from holdfast.comparison.observers import Observer
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.runner import run_all
from holdfast.comparison.stats import without_warm_up
from holdfast.comparison.stored_run import StoredRun, read_run
from holdfast.comparison.study_schema import MetricFacts
from holdfast.core.errors import HoldfastError
from holdfast.method.config import Config
from holdfast.method.method import as_method
from holdfast.runs.code_files import recorded

LAST = 5  # the most rounds whose mean is the score of a trial, since single rounds swing; and one in LAST of all


class Trial(NamedTuple):
    """One run."""

    point: Point
    rounds: int
    seed: int


@dataclass(frozen=True)
class TrialOutcome:
    """What a trial gave, as far as a race may know: nothing of it comes from test data.

    Attributes:
        score: On the validation data, negated if lower is better; None if the run diverged.
        cost: What it cost, in the unit of the budget.
    """

    score: float | None
    cost: float


IMPOSSIBLE = TrialOutcome(None, 0.0)  # of a setting that a method refuses


class Trials(Protocol):
    """Carries out trials."""

    def run(self, trials: Sequence[Trial]) -> list[TrialOutcome]:
        """Return the outcome of every trial; one that was carried out before is not repeated."""
        ...


class Stopped(Exception):
    """The user stopped the race, which can be resumed."""


@dataclass
class StoredTrials:
    """Trials as runs on disk, which survive the end of this process.

    Attributes:
        folder: The folder of the race.
        config: The settings that all trials share.
        executor: What carries out runs.
        metric: What is scored.
        budget: What costs are counted in.
        jobs: How many runs at a time.
        where: The workers, as ``--executor`` names them.
        watch: Observes every round and run.
        stop: Asked after every round whether to stop.
    """

    folder: Path
    config: Config
    executor: Executor
    metric: MetricFacts
    budget: Budget
    jobs: int
    where: str
    watch: Observer
    stop: Callable[[], bool]
    known: dict[str, bool] = field(default_factory=dict)  # whether a method accepts its setting, by label

    @cached_property
    def costs(self) -> TrialCosts:
        """What trials have cost in time, as far as is known."""
        return TrialCosts(self.folder)

    def run(self, trials: Sequence[Trial]) -> list[TrialOutcome]:
        started = time.perf_counter()
        tasks = {trial: self.planned(trial, row) for row, trial in enumerate(trials)}
        left = {trial: task for trial, task in tasks.items() if self._is_possible(task)}
        new = [trial for trial, task in left.items() if task.state() in ("new", "started")]
        if not run_all(list(left.values()), self.executor, self.jobs, self.watch, self.stop, True, self.where):
            raise Stopped
        runs = {trial: read_run(task.folder, task.config.seed) for trial, task in left.items()}
        if not self.budget.in_rounds:
            passed = time.perf_counter() - started
            self.costs.share_out(passed, {self._name(left[trial]): training(runs[trial]) for trial in new})
        return [
            self._outcome(self._name(left[trial]), runs[trial]) if trial in left else IMPOSSIBLE for trial in trials
        ]

    def _name(self, task: PlannedRun) -> str:
        return task.folder.relative_to(self.folder).as_posix()

    def _is_possible(self, task: PlannedRun) -> bool:
        """Tell whether a method accepts its setting; some refuse a learning rate. A setting is asked about once."""
        if task.label not in self.known:
            self.known[task.label] = task.state() != "new" or self._accepted(task)
        return self.known[task.label]

    def _accepted(self, task: PlannedRun) -> bool:
        try:
            self.executor.check(task)
        except HoldfastError as error:
            self.watch.say(f"left out: {task.label}: {error}")
            return False
        return True

    def planned(self, trial: Trial, row: int = 0) -> PlannedRun:
        """Return a trial as a run in a folder of its own."""
        point = trial.point
        config = recorded(self.config.changed(method=point.method, lr=point.lr, rounds=trial.rounds, seed=trial.seed))
        folder = self.folder / "runs" / slug(f"{point.method} lr {point.lr:.6g}")
        name = f"rounds-{trial.rounds}-seed-{trial.seed}"
        return PlannedRun(row, 0, point.label, config, as_method(point.method), folder / name)

    def test_scores(self, trials: Sequence[Trial]) -> list[float | None]:
        """Return what finished trials score on the test data, in the unit of the metric; for the answer alone."""
        runs = [read_run(self.planned(trial).folder, trial.seed) for trial in trials]
        return [None if run.why else self._last(run.history, "test") for run in runs]

    def figures(self, trials: Sequence[Trial]) -> list[Mapping[str, float]]:
        """Return the bytes and the seconds of a round of finished trials."""
        found = list[Mapping[str, float]]()
        for trial in trials:
            history = read_run(self.planned(trial).folder, trial.seed).history
            seconds = without_warm_up([line["seconds"] for line in history])
            traffic = [line["upload_bytes"] + line["download_bytes"] for line in history]
            found.append({"seconds": statistics.median(seconds), "bytes": statistics.fmean(traffic)})
        return found

    def _outcome(self, name: str, run: StoredRun) -> TrialOutcome:
        cost = len(run.history) if self.budget.in_rounds else self.costs.of(name, training(run))
        score = None if run.why or run.get("exploded") else self._last(run.history, "validation")
        if score is not None and not self.metric.higher_is_better:
            score = -score
        return TrialOutcome(score, cost)

    def _last(self, history: Sequence[Mapping[str, Any]], kind: str) -> float | None:
        """Return the mean score of the last evaluated rounds; None if one of them has none."""
        scores = [line[kind].get(self.metric.metric) for line in history if line[kind]]
        scores = scores[-max(1, min(LAST, len(scores) // LAST)) :]
        return None if not scores or None in scores else statistics.fmean(scores)


def training(run: StoredRun) -> float:
    """Return the seconds that the rounds of a run took."""
    return float(sum(line["seconds"] for line in run.history))
