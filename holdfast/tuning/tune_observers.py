"""Followers of a search: one that is silent, and one that writes a line per rung, for logs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from holdfast.comparison.observers import Observer
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.score_text import ScoreText
from holdfast.tuning.search_axis import point_text


class TuneObserver(Observer):
    """Follows a search silently; the base class of all its observers."""

    def start(self, methods: Sequence[str], rounds: Sequence[int], done: Sequence[int]) -> None:
        """Called before the first run.

        Args:
            methods: The methods; a run's ``row`` is the place of its own.
            rounds: The rounds of each, with those on fresh seeds.
            done: How many of them are done.
        """

    def rung(self, method: str, rung: int, trials: int, point: dict[str, Any], score: float | None) -> None:
        """Called when trials of a method have reached a rung.

        Args:
            method: The method.
            rung: The round of the rung.
            trials: How many of its trials have reached the rung.
            point: The values of the best of them.
            score: Its validation score; None if all diverged.
        """

    def finals(self) -> None:
        """Called when the search is over and the best settings run on fresh seeds."""

    def finish(self) -> None:
        """Called at the very end, or when the search was stopped."""


class TuneLog(TuneObserver):
    """Writes lines to stderr."""

    def start(self, methods: Sequence[str], rounds: Sequence[int], done: Sequence[int]) -> None:
        self.say(f"{len(methods)} method{'s' * (len(methods) != 1)}, {sum(rounds)} rounds, {sum(done)} of them done")

    def rung(self, method: str, rung: int, trials: int, point: dict[str, Any], score: float | None) -> None:
        text = ScoreText(self.metric.percent, 1, " %").value(score)
        best = f"best validation {self.metric.spoken} {text} with {point_text(point)}" if point else "all diverged"
        self.say(f"{method}: {trials} trial{'s' * (trials != 1)} at round {rung}, {best}")

    def finals(self) -> None:
        self.say("the best settings on fresh seeds")

    def end(self, task: PlannedRun, state: str, why: str) -> None:
        if state == "diverged":
            self.say(f"{task.label}, seed {task.config.seed}: {why}")

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
