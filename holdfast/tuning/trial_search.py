"""The search itself: propose trials, run them to a rung, let the best continue, until a few have finished.

Everything that decides is on disk: what a trial tries and its scores in the store, its rounds in its run folder. A
search that was killed walks through the same stages again and runs only what is missing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.comparison.executor import Executor
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.runner import refuse_mixed_meanings, run_all
from holdfast.comparison.stored_run import StoredRun, read_started
from holdfast.comparison.study_schema import MetricFacts
from holdfast.runs.folder import RunFolder
from holdfast.runs.run_files import HISTORY
from holdfast.tuning.halving import best
from holdfast.tuning.sampling import Proposer, batches
from holdfast.tuning.trial_store import TrialStore
from holdfast.tuning.tune_observers import TuneObserver
from holdfast.tuning.tune_plan import TunePlan


@dataclass
class TrialSearch:
    """Carries out a search.

    Attributes:
        plan: What to search.
        folder: Where it is kept.
        store: The trials on disk.
        metric: What it goes by.
        executor: Runs the trials.
        watch: Follows the search.
        stop: Asked after every round whether to stop.
    """

    plan: TunePlan
    folder: Path
    store: TrialStore
    metric: MetricFacts
    executor: Executor
    watch: TuneObserver
    stop: Callable[[], bool]

    def carry_out(self) -> bool:
        """Run whatever is missing; tell whether the search is complete."""
        methods = list(self.plan.spaces)
        halvings = {m: self.plan.halving(m) for m in methods}
        walks = {m: halvings[m].stages(partial(self._score, m), self.metric) for m in methods}
        for at, rung in enumerate(self.plan.rungs):
            stage = {m: numbers for m in methods for _, numbers in [next(walks[m], (rung, list[int]()))]}
            whole = [range(max(h.trials for h in halvings.values()))]
            for batch in whole if at else batches(whole[0].stop, self.plan.sampler):
                now = {m: [n for n in numbers if n in batch] for m, numbers in stage.items()}
                if at == 0:
                    self._propose(now, batch.start)
                if not self._advance(now, rung):
                    return False
            self._drop({m: sorted({*range(halvings[m].trials)} - {*stage[m]}) for m in methods})
        for m in methods:
            self.store.finish(m, self.plan.rungs[-1])
        self._drop({m: list(range(halvings[m].trials)) for m in methods})
        return True

    def best(self) -> dict[str, int]:
        """Return the number of the best trial of every method; none for one whose trials have all diverged."""
        found: dict[str, int] = {}
        for method in self.plan.spaces:
            numbers = range(len(self.store.tried(method)))
            ranked = best(numbers, self.plan.rungs[-1], partial(self._score, method), self.metric)
            found |= {method: ranked[0]} if ranked else {}
        return found

    def rounds_done(self) -> list[int]:
        """Return the rounds that the trials and fresh runs of every method already have."""
        patterns = (f"trial-*/{HISTORY}", f"best/seed-*/{HISTORY}")
        folders = [self.folder / entry.folder for entry in self.plan.entries]
        files = [[path for pattern in patterns for path in folder.glob(pattern)] for folder in folders]
        return [sum(path.read_bytes().count(b"\n") for path in paths) for paths in files]

    def run_of(self, method: str, number: int) -> StoredRun:
        """Read the run of a trial as far as it is."""
        return read_started(self._task(method, number, self.plan.rungs[-1]).folder, self.plan.search_seed)

    def _propose(self, now: Mapping[str, Sequence[int]], start: int) -> None:
        """Note what the trials of a batch try; they know the scores of the trials before ``start``."""
        for method, numbers in now.items():
            tried = self.store.tried(method)
            proposer = Proposer(self.plan.spaces[method], self.plan.sampler, self.plan.search_seed, self.metric)
            for number in [n for n in numbers if n >= len(tried)]:
                trials = self.plan.halving(method).trials
                self.store.add(method, proposer.propose(number, tried[:start], trials))

    def _advance(self, now: Mapping[str, Sequence[int]], rung: int) -> bool:
        """Run trials to a rung and note their scores; tell whether all got there."""
        scored = {m: self.store.tried(m) for m in now}
        left = [(m, n) for m, numbers in now.items() for n in numbers if rung not in scored[m][n].scores]
        tasks = [self._task(m, n, rung) for m, n in left]
        execution = self.plan.finals.execution
        refuse_mixed_meanings(tasks)
        if not run_all(tasks, self.executor, execution.jobs, self.watch, self.stop, where=execution.executor):
            return False
        for (method, number), task in zip(left, tasks, strict=True):
            self.store.report(method, number, rung, self._reached(task, rung))
        for method in now:
            self._tell(method, rung)
        return True

    def _task(self, method: str, number: int, rung: int) -> PlannedRun:
        row = list(self.plan.spaces).index(method)
        return self.plan.trial(row, number, self.store.tried(method)[number].point, rung, self.folder)

    def _reached(self, task: PlannedRun, rung: int) -> float | None:
        """Return the validation score of a run in the last evaluated round up to a rung; None if it diverged."""
        run = read_started(task.folder, task.config.seed)
        scores = [line["validation"].get(self.metric.metric) for line in run.history if line["round"] <= rung]
        known = [score for score in scores if score is not None]
        return None if run.why or not known else known[-1]

    def _score(self, method: str, number: int, rung: int) -> float | None:
        return self.store.tried(method)[number].scores.get(rung)

    def _drop(self, numbers: Mapping[str, Sequence[int]]) -> None:
        """Delete the checkpoints of trials that do not continue."""
        for method, dropped in numbers.items():
            for number in dropped:
                task = self._task(method, number, self.plan.rungs[-1])
                shutil.rmtree(RunFolder(task.folder).checkpoint, ignore_errors=True)

    def _tell(self, method: str, rung: int) -> None:
        tried = self.store.tried(method)
        known = [(n, t) for n, t in enumerate(tried) if t.scores.get(rung) is not None]
        ranked = best([n for n, _ in known], rung, partial(self._score, method), self.metric)
        first: dict[str, Any] = tried[ranked[0]].point if ranked else {}
        score = tried[ranked[0]].scores[rung] if ranked else None
        self.watch.rung(method, rung, sum(rung in t.scores for t in tried), first, score)
