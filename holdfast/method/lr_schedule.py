"""Learning-rate schedules: the local learning rate of every round, as a factor on ``lr``.

A schedule counts rounds from 0 after its warm-up, as ``torch.optim.lr_scheduler`` counts epochs. During a warm-up of W
rounds the factor rises linearly, t/(W + 1) in round t = 1..W; round W + 1 is the first one with the full rate. A
factor depends on the settings and the round alone, so that a resumed run continues exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.params import Named, build, one, param


def warmup_rounds() -> Any:
    """Declare the parameter that every schedule has, after its own ones."""
    return param(0, "rounds in which the rate rises linearly to lr", low=0)


@dataclass(frozen=True)
class LrSchedule(Named):
    """A learning-rate schedule. Its fields are its parameters, the last of which is the warm-up."""

    @property
    def warmup(self) -> int:
        """The rounds in which the rate rises; a field of every schedule."""
        raise NotImplementedError

    @property
    def depends_on_rounds(self) -> bool:
        """Whether the rate of a round depends on the number of rounds of the run."""
        return False

    def at(self, t: int, rounds: int) -> float:
        """Return the factor on ``lr`` in round ``t`` = 1, 2, ... of a run of ``rounds``."""
        if t <= self.warmup:
            return t / (self.warmup + 1)
        return self.after_warmup(t - 1 - self.warmup, rounds)

    def after_warmup(self, e: int, rounds: int) -> float:
        """Return the factor ``e`` = 0, 1, ... rounds after the first one with the full rate."""
        raise NotImplementedError

    def check(self, rounds: int) -> None:
        """Raise an error if the schedule does not fit a run of this many rounds."""
        if self.warmup >= rounds:
            raise HoldfastError(
                f"lr_schedule: {self.name} with warmup={self.warmup} never reaches the full rate in {rounds} "
                f"round{'s' * (rounds != 1)}: lower warmup, or raise rounds"
            )


@dataclass(frozen=True)
class ConstantRate(LrSchedule):
    """The same rate in every round."""

    name = "constant"
    warmup: int = warmup_rounds()

    def after_warmup(self, e: int, rounds: int) -> float:
        return 1.0


@dataclass(frozen=True)
class ExponentialRate(LrSchedule):
    """The rate is multiplied by ``factor`` after every round."""

    name = "exponential"
    factor: float = param(0.998, "factor by which the rate changes after every round", above=0, high=1)
    warmup: int = warmup_rounds()

    def after_warmup(self, e: int, rounds: int) -> float:
        return float(self.factor**e)


@dataclass(frozen=True)
class StepRate(LrSchedule):
    """The rate is multiplied by ``factor`` after every ``every`` rounds."""

    name = "step"
    every: int = param(100, "rounds with the same rate", low=1)
    factor: float = param(0.1, "factor by which the rate then changes", above=0, high=1)
    warmup: int = warmup_rounds()

    def after_warmup(self, e: int, rounds: int) -> float:
        return float(self.factor ** (e // self.every))


@dataclass(frozen=True)
class CosineRate(LrSchedule):
    """The rate falls along half a cosine from 1 to ``final``, which is reached after the last round.

    The horizon is ``rounds``, warm-up included; by default it is the number of rounds of the run. Such a run cannot be
    extended, since its earlier rounds would have had other rates. After an explicit horizon the rate stays at its
    final value.
    """

    name = "cosine"
    final: float = param(0.0, "factor at the end", low=0, high=1)
    rounds: int | None = param(None, "rounds until the end is reached; default: those of the run", low=1)
    warmup: int = warmup_rounds()

    @property
    def depends_on_rounds(self) -> bool:
        return self.rounds is None

    def after_warmup(self, e: int, rounds: int) -> float:
        length = (self.rounds or rounds) - self.warmup
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * min(e / length, 1))) / 2

    def check(self, rounds: int) -> None:
        super().check(min(rounds, self.rounds or rounds))
        if self.rounds is not None and self.rounds < rounds and self.final == 0:
            raise HoldfastError(
                f"lr_schedule: {self} ends with a rate of 0 after {self.rounds} of {rounds} rounds: raise its rounds, "
                "or set final above 0"
            )


SCHEDULES: dict[str, type[LrSchedule]] = {
    cls.name: cls for cls in (ConstantRate, ExponentialRate, StepRate, CosineRate)
}


def read_schedule(text: str) -> LrSchedule:
    """Read a schedule.

    >>> schedule = read_schedule("step(every=2, factor=0.5)")
    >>> [schedule.at(t, rounds=5) for t in range(1, 6)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    >>> [read_schedule("constant(warmup=3)").at(t, rounds=5) for t in range(1, 6)]
    [0.25, 0.5, 0.75, 1.0, 1.0]
    """
    return build(one(text, "learning-rate schedule"), SCHEDULES, "learning-rate schedule")
