"""Hands runs to workers wherever these are, follows them, and has the runs of workers that die resumed by others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from holdfast.comparison.observers import Observer
from holdfast.comparison.planned_run import PlannedRun
from holdfast.core.errors import HoldfastError
from holdfast.training.round_record import RoundRecord

MOST_DEATHS = 3  # of workers at one run without a new round in between, before the run counts as deadly


class RoundDone(NamedTuple):
    """A run has ended a round."""

    record: RoundRecord


class RunEnded(NamedTuple):
    """A run is over for now: ``finished``, ``stopped`` or ``diverged``."""

    state: str
    why: str


class RunFailed(NamedTuple):
    """A run failed other than by diverging, which ends all runs."""

    error: Exception


class WorkerDied(NamedTuple):
    """The worker of a run is gone; the run is as far as its last checkpoint."""

    what: str  # who died and how, as the beginning of a sentence
    remedy: str


class Remark(NamedTuple):
    """A worker has something to say about its runs."""

    text: str


Event = RoundDone | RunEnded | RunFailed | WorkerDied | Remark


class WorkerPool(ABC):
    """Workers in one place. A subclass says how to reach them; runs are known by their numbers in the list.

    Two workers never write one run: it is handed to one of them, and the lock of its folder refuses a second one.
    """

    def run(self, tasks: Sequence[PlannedRun], watch: Observer, stop: Callable[[], bool]) -> bool:
        """Run the tasks. A run that fails, other than by diverging, ends them all with its error.

        Args:
            tasks: What to run.
            watch: Observes every round and run.
            stop: Asked again and again whether to stop.

        Returns:
            Whether every run is done.
        """
        left, deaths = set(range(len(tasks))), Counter[int]()
        asked = stopped = False
        try:
            self.open(tasks)
            self.submit(sorted(left))
            while left:
                if stop() and not asked:
                    asked = True
                    dropped = self.ask_to_stop()
                    left, stopped = left - dropped, bool(dropped) or stopped
                for number, event in self.events():
                    task = tasks[number]
                    if isinstance(event, RoundDone):
                        deaths.pop(number, None)
                        watch.round(task, event.record)
                    elif isinstance(event, RunEnded):
                        left.discard(number)
                        stopped = stopped or event.state == "stopped"
                        watch.end(task, event.state, event.why)
                    elif isinstance(event, RunFailed):
                        raise event.error
                    elif isinstance(event, Remark):
                        watch.say(event.text)
                    elif asked:
                        left.discard(number)
                        stopped = True
                    else:
                        deaths[number] += 1
                        if deaths[number] >= MOST_DEATHS:
                            raise HoldfastError(f"{event.what}; its finished rounds are kept: {event.remedy}")
                        watch.say(f"{event.what}; {task.label}, seed {task.config.seed} is resumed")
                        self.submit([number])
        finally:
            self.close()
        return not stopped

    @abstractmethod
    def open(self, tasks: Sequence[PlannedRun]) -> None:
        """Get ready for these runs; an error here ends the command before anything is run."""

    @abstractmethod
    def submit(self, numbers: Sequence[int]) -> None:
        """Have these runs carried out, as soon as there are workers for them. A run that was begun is resumed."""

    @abstractmethod
    def events(self) -> Iterable[tuple[int, Event]]:
        """Return what has happened to which run; return after a short while even if nothing has."""

    @abstractmethod
    def ask_to_stop(self) -> set[int]:
        """Ask all runs to stop after their current round; return those that no worker has begun, and drop them."""

    @abstractmethod
    def close(self) -> None:
        """Let the workers go; runs that are still going on are ended, and can be resumed."""
