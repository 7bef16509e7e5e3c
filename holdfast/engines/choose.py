"""Which engine a run uses, and why."""

from __future__ import annotations

from holdfast.engines.loop import Loop
from holdfast.engines.replay import Room
from holdfast.engines.vector import Vector
from holdfast.errors import unknown
from holdfast.local import Local

Engine = Loop | Vector
ENGINES = ("loop", "vector")


def choose(asked: str, convolutional: bool, device: str, cohort: int) -> tuple[str, str]:
    """The engine's name and the reason. Fixed rules, so that the same run always gets the same engine.

    >>> choose("auto", convolutional=True, device="cpu", cohort=10)
    ('loop', 'on a CPU convolutions run faster one client at a time')
    """
    if asked != "auto":
        if asked not in ENGINES:
            raise unknown("engine", asked, [*ENGINES, "auto"])
        return asked, "as asked"
    if cohort == 1:
        return "loop", "the cohort is a single client"
    if device != "cpu":
        return "vector", "a GPU is best filled by the whole cohort at once"
    if convolutional:
        return "loop", "on a CPU convolutions run faster one client at a time"
    return "vector", "a dense model on a CPU is fastest as one batch of clients"


def products(asked: str, device: str) -> bool:
    """Whether the vector engine computes convolutions as matrix products."""
    return asked == "product" or (asked == "auto" and device == "cuda")


def build(name: str, local: Local, slice: int | None, room: Room | None, compiled: bool) -> Engine:
    """The engine of this name for this training; ``room`` lets the vector engine trace its step."""
    return Loop(local) if name == "loop" else Vector(local, slice, room, compiled)
