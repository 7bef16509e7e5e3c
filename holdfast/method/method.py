"""A method: a checked sum of parts. ``fedavg`` is the empty sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError, unknown
from holdfast.core.expression import parse
from holdfast.core.params import make
from holdfast.method.part import SINGLE, Part, parts
from holdfast.method.recipes import RECIPES

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.method.config import Config
    from holdfast.models.net import Net


@dataclass(frozen=True)
class Method:
    """Parts in the order in which they were summed.

    >>> str(Method.parse("fedbug(0.2) + prox(mu=0.01)"))
    'fedbug(share=0.2) + prox'
    """

    parts: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        names = [p.name for p in self.parts]
        for part in self.parts:
            if not part.name or not part.hooks():
                lacks = "fills no hook: is one misspelt?" if part.name else 'has no name: give the class name = "..."'
                raise HoldfastError(f"the part {type(part).__name__} {lacks}")
        for name in names:
            if names.count(name) > 1:
                raise HoldfastError(f"{name} stands twice in the sum: keep one")
        for hook in SINGLE:
            found = self.filling(hook)
            if len(found) > 1:
                raise HoldfastError(conflict(found[0].name, found[1].name, hook))
        for part in self.parts:
            for other, why in part.never_with.items():
                if other in names:
                    raise HoldfastError(f"{part.name} cannot be summed with {other}: {why}")

    @classmethod
    def parse(cls, text: str) -> Method:
        """Read a sum such as ``fedbug(0.4)+feddyn(alpha=0.01)``: names of parts or of recipes."""
        known = parts()
        found: list[Part] = []
        for call in parse(text):
            if call.name in RECIPES:
                found += RECIPES[call.name].parts(call, known)
            elif call.name in known:
                found.append(make(known[call.name], call.args, call.kwargs))
            else:
                raise unknown("method", call.name, {*known, *RECIPES})
        return cls(tuple(found))

    def filling(self, hook: str) -> tuple[Part, ...]:
        """The parts that fill a hook, in order."""
        return tuple(p for p in self.parts if p.fills(hook))

    def single(self, hook: str) -> Part | None:
        """The one part that fills a hook that only one may fill."""
        found = self.filling(hook)
        return found[0] if found else None

    @property
    def uniform(self) -> bool:
        """Whether the default mean counts every client once instead of by its samples."""
        return any(p.uniform for p in self.parts)

    def check(self, config: Config, net: Net, federation: Federation) -> None:
        """Ask every part whether it agrees with the run."""
        owner = self.single("server_step")
        if owner is not None and config.server_lr != 1.0:
            raise HoldfastError(
                f"--server-lr {config.server_lr:g} does nothing: {owner.name} makes the server step itself; "
                f"leave the flag out (see: holdfast methods {owner.name})"
            )
        for part in self.parts:
            part.check(self, config, net, federation)

    def __add__(self, other: str | Part | Method) -> Method:
        return Method((*self.parts, *as_method(other).parts))

    def __str__(self) -> str:
        return " + ".join(str(p) for p in self.parts) or "fedavg"


def conflict(first: str, second: str, hook: str) -> str:
    """Why two parts cannot share a hook, in one line."""
    what = {
        "lr": "set the learning rate",
        "task_loss": "replace the loss",
        "gradient": "decide where the gradient is taken",
        "aggregate": "aggregate the cohort",
        "server_step": "make the server step",
    }[hook]
    return f"{first} and {second} cannot be summed: both {what}; keep one of them"


def as_method(given: str | Part | Method | Sequence[Part]) -> Method:
    """A method from whatever the user has at hand."""
    if isinstance(given, Method):
        return given
    if isinstance(given, Part):
        return Method((given,))
    return Method.parse(given) if isinstance(given, str) else Method(tuple(given))
