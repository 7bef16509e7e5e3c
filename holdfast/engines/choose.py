"""Which engine a run uses, and why."""

from __future__ import annotations

import os
import shutil

import torch

from holdfast.core.errors import unknown
from holdfast.engines.client_update import ClientUpdate
from holdfast.engines.cuda_graph import CohortShape
from holdfast.engines.loop import Loop
from holdfast.engines.vector import Vector

Engine = Loop | Vector
ENGINES = ("loop", "vector")
MANY = 20_000  # local steps of a run from which on a CPU's compiler, some ten seconds, pays


def choose(asked: str, convolutional: bool, device: str, cohort: int) -> tuple[str, str]:
    """The engine's name and the reason. Fixed rules, so that the same run always gets the same engine.

    >>> choose("auto", convolutional=True, device="cpu", cohort=10)
    ('loop', 'on a CPU convolutions run faster one client at a time')
    """
    if asked != "auto":
        if asked not in ENGINES:
            raise unknown("engine", asked, [*ENGINES, "auto"])
        return asked, "as asked"
    if device != "cpu":
        return "vector", "a GPU is best filled by the whole cohort at once"
    if cohort == 1:
        return "loop", "the cohort is a single client"
    if convolutional:
        return "loop", "on a CPU convolutions run faster one client at a time"
    return "vector", "a dense model on a CPU is fastest as one batch of clients"


def products(asked: str, device: str) -> bool:
    """Whether the vector engine computes convolutions as matrix products."""
    return asked == "product" or (asked == "auto" and device == "cuda")


def workers(asked: int | None, convolutional: bool, device: str, cohort: int) -> int:
    """How many clients the loop engine trains side by side; small dense networks would only wait for each other."""
    if asked is not None:
        return asked
    return min(torch.get_num_threads(), cohort) if convolutional and device == "cpu" else 1


def compiles(asked: bool | None, device: str, steps: int) -> bool:
    """Whether the vector engine compiles its step: where that pays within the run."""
    if asked is not None:
        return asked
    return device != "cpu" or (steps >= MANY and any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))))


def build(
    name: str, local: ClientUpdate, slice: int | None, workers: int, room: CohortShape | None, compiled: bool
) -> Engine:
    """The engine of this name for this training; ``room`` lets the vector engine trace its step."""
    return Loop(local, workers) if name == "loop" else Vector(local, slice, room, compiled)
