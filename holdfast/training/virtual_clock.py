"""The virtual clock of a simulation: who is there when, how long a round takes, and who is late.

A client takes as long as receiving the model, training on its samples and sending its update take. A round lasts as
long as its slowest client, or until the deadline if anybody is late. The server takes no time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.speeds.client_speeds import ClientSpeeds

EXACTLY = 1 + 1e-9  # so that rounding makes nobody late who needs exactly the time that there is


class Work(NamedTuple):
    """The local training of some clients, int64 [C]."""

    samples: np.ndarray  # that each has
    per_step: np.ndarray  # samples of a step, except the last of a pass
    steps: np.ndarray  # to take

    @property
    def per_pass(self) -> np.ndarray:
        """The steps of a pass over a client's samples."""
        steps: np.ndarray = -(-self.samples // self.per_step)
        return steps

    def seen(self) -> np.ndarray:
        """Return on how many samples each client trains, those of every pass counted again."""
        passes, rest = np.divmod(self.steps, self.per_pass)
        samples: np.ndarray = passes * self.samples + rest * self.per_step
        return samples

    def steps_within(self, samples: np.ndarray) -> np.ndarray:
        """Return how many of its steps each client takes if it trains on at most so many samples."""
        most = np.minimum(np.maximum(samples, 0), self.seen())
        passes, rest = np.divmod(most, self.samples)
        taken = passes * self.per_pass + rest // self.per_step
        steps: np.ndarray = np.minimum(taken, self.steps).astype(np.int64)
        return steps


class Timetable(NamedTuple):
    """What a round's clients do within its time.

    Attributes:
        ids: The clients whose work arrives.
        steps: How many steps each of them takes.
        late: The clients whose work is missing since they are late.
        shortened: The clients that stop before their last step, to be in time.
        seconds: How long the round takes.
    """

    ids: np.ndarray
    steps: np.ndarray
    late: list[int]
    shortened: list[int]
    seconds: float


class VirtualClock:
    """The time of one run.

    Args:
        speeds: The machines of the clients.
        deadline: The seconds after which a round ends; None: when everybody is done.
        keep: Whether a client that would be late sends what it has after as many steps as fit.

    Attributes:
        ended: When the last round ended.
        now: When this one begins.
    """

    def __init__(self, speeds: ClientSpeeds, deadline: float | None = None, keep: bool = False) -> None:
        self.speeds, self.deadline, self.keep = speeds, deadline, keep
        self.ended = self.now = 0.0

    def resume(self, seconds: Iterable[float | None]) -> None:
        """Continue after rounds that took so many seconds."""
        for taken in seconds:
            self.ended += taken or 0.0
        self.now = self.ended

    def present(self, clients: np.ndarray | range) -> np.ndarray | range:
        """Return the clients that are there. The clock moves on until somebody is."""
        if not self.speeds.leaves:
            return clients
        who = np.asarray(clients)
        while True:
            here: np.ndarray = who[self.speeds.present(who, self.now)]
            if len(here):
                return here
            later = self.speeds.next_change(who, self.now)
            if not np.isfinite(later):
                raise HoldfastError(
                    f"no client is available any more after {self.now:g} virtual seconds: lower --rounds, or lengthen "
                    "the traces of --client-speeds"
                )
            self.now = later

    def timetable(self, ids: np.ndarray, work: Work, down: int, up: int) -> Timetable:
        """Say who is in time.

        Args:
            ids: The clients of the round.
            work: Their local training.
            down: The bytes that each receives.
            up: The bytes that each sends.

        Returns:
            The timetable.
        """
        speeds = self.speeds.of(ids)
        transfer = speeds.transfer(down, up)
        if self.deadline is None:
            slowest = float((transfer + speeds.training(work.seen())).max(initial=0.0))
            return Timetable(ids, work.steps, [], [], slowest)
        left = self.deadline - transfer
        with np.errstate(invalid="ignore"):
            possible = np.where(np.isinf(speeds.speed), np.inf, np.floor(left * speeds.speed * EXACTLY))
        steps = work.steps_within(np.where(left < 0, 0, possible))
        late = steps < work.steps
        heard = ~late | ((steps > 0) & self.keep)
        done = work._replace(steps=steps)
        slowest = float((transfer + speeds.training(done.seen())).max(initial=0.0))
        return Timetable(
            ids[heard], steps[heard], ids[~heard].tolist(), ids[heard & late].tolist(),
            self.deadline if late.any() else slowest,
        )  # fmt: skip

    def end(self, seconds: float) -> float:
        """End the round after so many seconds of it; return what it took with the time in which nobody was there."""
        taken = (self.now - self.ended) + seconds
        self.ended = self.now = self.ended + taken
        return taken
