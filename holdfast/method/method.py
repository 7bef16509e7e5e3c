"""A method: a checked sum of parts. ``fedavg`` is the empty sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError, unknown
from holdfast.core.expression import parse
from holdfast.core.params import make
from holdfast.method.model_needs import check_local_batchnorm, check_needs
from holdfast.method.part import AT_SERVER, SINGLE, TOTAL, Part, parts
from holdfast.method.recipes import RECIPES

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.method.config import Config
    from holdfast.models.net import Net


@dataclass(frozen=True)
class Method:
    """Parts in the order in which they were summed, checked for conflicts.

    Attributes:
        parts: The parts; none for plain federated averaging.

    >>> str(Method.parse("fedbug(0.2) + prox(mu=0.01)"))
    'fedbug(share=0.2) + prox'
    """

    parts: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        for part in self.parts:
            check_complete(part)
        names = [p.name for p in self.parts]
        for name in names:
            if names.count(name) > 1:
                raise HoldfastError(f"{name} appears twice in the sum: keep one of them")
        for first, second in combinations(self.parts, 2):
            reason = conflict(first, second) or wrong_order(first, second)
            if reason:
                raise HoldfastError(reason)
        if self.robust is not None:
            self._check_robust(self.robust)
        if self.private is not None:
            self._check_private(self.private)

    @classmethod
    def parse(cls, text: str) -> Method:
        """Read a sum such as ``fedbug(0.4)+feddyn(alpha=0.01)``: names of parts or of recipes."""
        known = parts()
        summed: list[Part] = []
        for call in parse(text):
            if call.name in RECIPES:
                summed += RECIPES[call.name].parts(call, known)
            elif call.name in known:
                summed.append(make(known[call.name], call.args, call.kwargs))
            else:
                raise unknown("method", call.name, {*known, *RECIPES})
        return cls(tuple(summed))

    def _check_robust(self, robust: Part) -> None:
        """Refuse parts that a liar would reach past the robust mean."""
        for part in self.row_readers:
            if part is not robust and not part.fills("admit"):
                raise HoldfastError(
                    f"{robust.name} and {part.name} cannot be summed: {part.name} looks at single clients at the "
                    "server, so that a liar would reach it past the robust mean; leave one of them out"
                )

    def _check_private(self, private: Part) -> None:
        """Refuse parts to which clients show more than goes into the sums that ``private`` accounts for."""
        extra = [p for hook in ("consult", "survey", "trips") for p in self.filling(hook)]
        for part in (*self.row_readers, *extra):
            how = "looks at single clients" if part in self.row_readers else "asks clients for more than their update"
            raise HoldfastError(
                f"{private.name} and {part.name} cannot be summed: {part.name} {how}, which {private.name} does not "
                "account for; leave one of them out"
            )
        if not self.uniform:
            raise HoldfastError(f"{private.name} counts every client once: leave out mean(samples)")

    def filling(self, hook: str) -> tuple[Part, ...]:
        """Return the parts that fill a hook, in order."""
        return tuple(p for p in self.parts if p.fills(hook))

    def single(self, hook: str) -> Part | None:
        """Return the part that fills a hook that only one part may fill, or None."""
        filling = self.filling(hook)
        return filling[0] if filling else None

    def with_optimiser_of(self, other: Method) -> Method:
        """Return this method with another one's local optimiser, unless it has one of its own."""
        optimiser = other.single("optimise")
        return self if optimiser is None or self.single("optimise") else self + optimiser

    @property
    def uniform(self) -> bool:
        """Whether means count every client once, rather than by its samples.

        The part that aggregates decides, if it has a preference. Otherwise one part that asks for it is enough.
        """
        aggregator = self.single("aggregate")
        if aggregator is not None and aggregator.uniform is not None:
            return aggregator.uniform
        return any(p.uniform for p in self.parts)

    @property
    def reads_deltas(self) -> bool:
        """Whether some part needs the deltas of the whole cohort at once at the server."""
        readers = [p for p in self.parts if p.server_reads == "deltas" and any(map(p.fills, AT_SERVER))]
        return bool(readers or self.filling("trips") or self.filling("admit"))

    @property
    def row_readers(self) -> tuple[Part, ...]:
        """The parts whose half at the server looks at single clients. Without them, sums over the cohort are enough.

        A part that reads the total of the deltas needs every delta, unless the mean counts every client once.
        """
        return tuple(
            p for p in self.parts if p.sees_clients or ((p.linear or {}).get("delta") == TOTAL and not self.uniform)
        )

    @property
    def robust(self) -> Part | None:
        """The part that aggregates robustly, if there is one."""
        part = self.single("aggregate")
        return part if part is not None and part.robust else None

    @property
    def private(self) -> Part | None:
        """The part that makes the run differentially private, if there is one."""
        return next((p for p in self.parts if p.private), None)

    def check(self, config: Config, net: Net, federation: Federation) -> None:
        """Ask every part whether the run makes sense to it.

        Args:
            config: The settings of the run.
            net: The network.
            federation: The clients and their data.
        """
        owner = self.single("server_step")
        if owner is not None and config.server_lr != 1.0:
            raise HoldfastError(
                f"--server-lr {config.server_lr:g} has no effect: {owner.name} makes the server step itself; "
                f"leave the flag out (see: holdfast methods {owner.name})"
            )
        for part in self.parts:
            check_needs(part, net, federation.data.task)
            check_local_batchnorm(part, net)
            part.check(self, config, net, federation)

    def __add__(self, other: str | Part | Method) -> Method:
        return Method((*self.parts, *as_method(other).parts))

    def __str__(self) -> str:
        return " + ".join(str(p) for p in self.parts) or "fedavg"


def check_complete(part: Part) -> None:
    """Refuse a part without a name or without a hook."""
    if not part.name:
        raise HoldfastError(f'the part {type(part).__name__} has no name: add name = "..." to the class')
    if not any(map(part.fills, part.hooks())):
        raise HoldfastError(
            f"the part {type(part).__name__} fills no hook: define at least one, and check the spelling of its methods"
        )


def conflict(first: Part, second: Part) -> str | None:
    """Say in one line that two parts cannot be in one sum, or return None if they can."""
    why = why_not_both(first, second)
    return f"{first.name} and {second.name} cannot be summed: {why}; keep one of them" if why else None


def why_not_both(first: Part, second: Part) -> str | None:
    """Return why two parts cannot be in one sum, or None if they can."""
    shared = [f"both {what}" for hook, what in SINGLE.items() if first.fills(hook) and second.fills(hook)]
    excluded = first.excludes.get(second.name) or second.excludes.get(first.name)
    return shared[0] if shared else excluded or _no_gain(first, second) or _no_gain(second, first)


def _no_gain(part: Part, optimiser: Part) -> str:
    """Return why ``part`` needs a ``gain`` that an optimiser does not have; empty if it does not need it, or has it."""
    return part.needs_gain if optimiser.fills("optimise") and not optimiser.fills("gain") else ""


def wrong_order(first: Part, second: Part) -> str | None:
    """Say in one line that ``first`` must not come before ``second`` in a sum, or return None if it may."""
    why = why_after(first, second)
    return f"{first.name} must come after {second.name}: {why}; write {second.name}+{first.name}" if why else None


def why_after(first: Part, second: Part) -> str | None:
    """Return why ``first`` must come after ``second`` in a sum, or None if it need not."""
    follows = (why for hook, why in first.follows.items() if second.fills(hook) and hook not in second.follows)
    return next(follows, None)


def as_method(given: str | Part | Method | Sequence[Part]) -> Method:
    """Turn a sum in text, a part, several parts or a method into a method."""
    if isinstance(given, Method):
        return given
    if isinstance(given, Part):
        return Method((given,))
    return Method.parse(given) if isinstance(given, str) else Method(tuple(given))
