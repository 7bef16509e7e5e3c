"""What can be told while many runs go on: a plain line whenever one of them ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from holdfast.comparison.task import Task
from holdfast.training.round_record import RoundRecord

PATIENCE = 30.0  # seconds without a line


class Observer:
    """Follows the runs and says nothing; the base of those that do."""

    def begin(self, tasks: Sequence[Task], states: Sequence[str]) -> None:
        """Before the first run: every task, and how it stands on disk."""

    def round(self, task: Task, record: RoundRecord) -> None:
        """After every round of any run."""

    def end(self, task: Task, state: str, why: str) -> None:
        """After every run: ``finished``, ``stopped`` or ``diverged``."""

    def say(self, text: str) -> None:
        """A remark on all runs."""

    def close(self) -> None:
        """After the last run, or when they were stopped."""


class LineLog(Observer):
    """A line on stderr for every run that ends, and now and then on one that goes on: for logs."""

    last = 0.0  # when a line was last written

    def begin(self, tasks: Sequence[Task], states: Sequence[str]) -> None:
        self.total = len(tasks)
        self.done = sum(state in ("finished", "diverged") for state in states)
        self.say(standing(tasks, states))

    def round(self, task: Task, record: RoundRecord) -> None:
        if time.monotonic() > self.last + PATIENCE:
            known = "" if record.test_accuracy is None else f", accuracy {record.test_accuracy:.4f}"
            self.say(f"{task.label}, seed {task.config.seed}: round {record.round} of {task.config.rounds}{known}")

    def end(self, task: Task, state: str, why: str) -> None:
        if state == "stopped":
            return
        self.done += 1
        what = why
        if state == "finished":
            found = task.summary()
            what = f"accuracy {found['final_accuracy']:.4f} after {found['rounds']} rounds, {found['seconds']:.1f} s"
        self.say(f"{self.done}/{self.total} {task.label}, seed {task.config.seed}: {what}")

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
        self.last = time.monotonic()


def standing(tasks: Sequence[Task], states: Sequence[str]) -> str:
    """Such as ``6 runs: 3 done, 1 goes on at round 12, 2 to begin``; their number alone where all are to begin."""
    total = f"{len(tasks)} run{'s' * (len(tasks) != 1)}"
    done = sum(state in ("finished", "diverged") for state in states)
    begun = [task.kept() + 1 for task, state in zip(tasks, states, strict=True) if state == "begun" and task.kept()]
    new = len(tasks) - done - len(begun)
    if new == len(tasks):
        return total
    parts = [f"{done} done"] if done else []
    if begun:
        low, high = min(begun), max(begun)
        where = f"round {low}" if low == high else f"rounds {low} to {high}"
        parts.append(f"{len(begun)} {'goes' if len(begun) == 1 else 'go'} on at {where}")
    parts += [f"{new} to begin"] if new else []
    return f"{total}: {', '.join(parts)}"
