"""Followers of many runs: one that is silent, and one that writes a line whenever a run ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.study_schema import MetricFacts
from holdfast.training.round_record import RoundRecord

PATIENCE = 30.0  # seconds without a line


class Observer:
    """Follows the runs silently; the base class of all observers.

    Attributes:
        metric: What the runs go by; set before the first of them.
    """

    metric = MetricFacts()

    def begin(self, tasks: Sequence[PlannedRun], states: Sequence[str]) -> None:
        """Called before the first run, with every task and its state on disk."""

    def round(self, task: PlannedRun, record: RoundRecord) -> None:
        """Called after every round of any run."""

    def end(self, task: PlannedRun, state: str, why: str) -> None:
        """Called after every run, with the state ``finished``, ``stopped`` or ``diverged``."""

    def say(self, text: str) -> None:
        """Called with a remark about all runs."""

    def close(self) -> None:
        """Called after the last run, or when the runs were stopped."""


class LineLog(Observer):
    """Writes a line to stderr for every run that ends, and one now and then while a run is slow: for logs."""

    last = 0.0  # when a line was last written

    def begin(self, tasks: Sequence[PlannedRun], states: Sequence[str]) -> None:
        self.total = len(tasks)
        self.done = sum(state in ("finished", "diverged") for state in states)
        self.say(overview(tasks, states))

    def round(self, task: PlannedRun, record: RoundRecord) -> None:
        if time.monotonic() > self.last + PATIENCE:
            score = record.test.get(self.metric.metric)
            known = "" if score is None else f", {self.metric.spoken} {score:.4f}"
            self.say(f"{task.label}, seed {task.config.seed}: round {record.round} of {task.config.rounds}{known}")

    def end(self, task: PlannedRun, state: str, why: str) -> None:
        if state == "stopped":
            return
        self.done += 1
        outcome = why
        if state == "finished":
            s = task.summary()
            score = "" if s["final"] is None else f"{self.metric.spoken} {s['final']:.4f} after "
            outcome = f"{score}{s['rounds']} rounds, {s['seconds']:.1f} s"
            outcome += ", stopped early" if s.get("stopped_early") else ""
            outcome += f"; exploded by round {s['exploded_round']}" if s.get("exploded") else ""
        self.say(f"{self.done}/{self.total} {task.label}, seed {task.config.seed}: {outcome}")

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
        self.last = time.monotonic()


def overview(tasks: Sequence[PlannedRun], states: Sequence[str]) -> str:
    """Return a line such as ``6 runs: 3 done, 1 resuming at round 12, 2 to start``; just the number if all are new."""
    total = f"{len(tasks)} run{'s' * (len(tasks) != 1)}"
    done = sum(state in ("finished", "diverged") for state in states)
    started = [task.kept() + 1 for task, state in zip(tasks, states, strict=True) if state == "started" and task.kept()]
    new = len(tasks) - done - len(started)
    if new == len(tasks):
        return total
    parts = [f"{done} done"] if done else []
    if started:
        low, high = min(started), max(started)
        where = f"round {low}" if low == high else f"rounds {low} to {high}"
        parts.append(f"{len(started)} resuming at {where}")
    parts += [f"{new} to start"] if new else []
    return f"{total}: {', '.join(parts)}"
