"""Which engine a run uses, and how that engine is set up."""

from __future__ import annotations

import os
import shutil
from typing import Any

import torch

from holdfast.core.errors import HoldfastError, unknown
from holdfast.engines.batching_trial import obstacle
from holdfast.engines.local_training import LocalTraining
from holdfast.engines.loop import Loop
from holdfast.engines.row_step import CohortShape
from holdfast.engines.vector import Vector
from holdfast.models.net import Net
from holdfast.models.window_rules import has_triton, windows

Engine = Loop | Vector
ENGINES = ("loop", "vector")
LONG_RUN = 20_000  # local steps from which compiling on a CPU, which takes about ten seconds, pays off


def choose(asked: str, convolutional: bool, device: str, cohort: int) -> tuple[str, str]:
    """Return the engine's name and the reason. The rules are fixed, so that a run always gets the same engine.

    >>> choose("auto", convolutional=True, device="cpu", cohort=10)
    ('loop', 'on a CPU convolutions are faster one client at a time')
    """
    if asked != "auto":
        if asked not in ENGINES:
            raise unknown("engine", asked, [*ENGINES, "auto"])
        return asked, "as requested"
    if device == "cuda":
        return "vector", "a GPU works best on the whole cohort at once"
    if device == "mps":
        return "loop", "on Apple's GPU clients are trained one at a time"
    if cohort == 1:
        return "loop", "the cohort is a single client"
    if convolutional:
        return "loop", "on a CPU convolutions are faster one client at a time"
    return "vector", "on a CPU a dense model is fastest as one batch of clients"


def choose_for(asked: str, net: Net, cohort: int, example: Any) -> tuple[str, str]:
    """Return the engine's name and the reason for a network, which may not be one that can be batched over clients.

    Args:
        asked: The engine that the run asks for.
        net: The network.
        cohort: The clients per round.
        example: Two inputs of the network.

    Returns:
        Name and reason.
    """
    name, reason = choose(asked, net.convolutional, net.device.type, cohort)
    problem = obstacle(net, example) if name == "vector" else None
    if problem is None:
        return name, reason
    if asked == "vector":
        raise HoldfastError(f"the model {problem}; use --engine loop")
    return "loop", f"the model {problem}"


def convolutions(asked: str, net: Net) -> str:
    """Return how the vector engine computes convolutions: ``direct``, ``product`` or ``window``."""
    if asked == "window" and net.device.type == "cuda" and not has_triton():
        raise HoldfastError("convolution = window needs Triton, which is not installed: use --convolution product")
    if asked != "auto":
        return asked
    return "product" if net.device.type == "cuda" else "direct"


def best_convolutions(asked: str, net: Net) -> str:
    """Decide for a run that starts how it computes convolutions on a GPU; on a CPU it is left open."""
    if asked != "auto" or net.device.type != "cuda":
        return asked
    return "window" if net.convolutional and windows(net.device, net.precision) else "product"


def workers(asked: int | None, busy: bool, device: str, cohort: int) -> int:
    """Return how many clients, or groups of them, may train in parallel: several only if each keeps a core ``busy``."""
    if asked is not None:
        return asked
    return min(torch.get_num_threads(), cohort) if busy and device == "cpu" else 1


def compiles(asked: bool | None, device: str, steps: int) -> bool:
    """Tell whether the vector engine compiles its step: by default, where it pays off within the run."""
    if asked is not None:
        return asked
    if device != "cpu":
        return device == "cuda"
    return steps >= LONG_RUN and any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++")))


def build(
    name: str,
    training: LocalTraining,
    slice: int | None = None,
    workers: int = 1,
    shape: CohortShape | None = None,
    compiled: bool = False,
) -> Engine:
    """Build an engine.

    Args:
        name: ``loop`` or ``vector``.
        training: The local training under a method.
        slice: The most clients that the vector engine trains at a time.
        workers: The clients that the loop engine trains in parallel, or the groups of dense clients.
        shape: The shape of all clients, which lets the vector engine trace its step.
        compiled: Whether the vector engine compiles its step.

    Returns:
        The engine.
    """
    return Loop(training, workers) if name == "loop" else Vector(training, slice, shape, compiled, workers)
