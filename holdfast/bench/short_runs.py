"""Short runs on a CPU with default flags, as a user starts them, each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from holdfast.bench.baseline_process import BaselineProcess
from holdfast.bench.timing import Timing
from holdfast.bench.workload import TimedRounds, plain_round
from holdfast.data.federation import Federation
from holdfast.engines.threads import suitable_threads
from holdfast.models.zoo import make
from holdfast.runs.run import run

SUITE = "Runs of 30 rounds on the CPU with default flags, against plain PyTorch (the same federation)"
MODELS = ("linear", "mlp")
ROUNDS, TIMES = 30, 3
WORK: dict[str, Any] = {"cohort": 10, "epochs": 1, "batch": 32}


def rows(fed: Federation, models: Sequence[str] = MODELS, rounds: int = ROUNDS, times: int = TIMES) -> Iterator[Timing]:
    """Time both in turn, always in new processes, and keep the fastest of each.

    Args:
        fed: The federation.
        models: The networks.
        rounds: The rounds of a run.
        times: How many runs.

    Yields:
        For every model the mean round from the first on, and the whole run with its evaluations.
    """
    for model in models:
        ours, base = fastest_in_turn((our_rounds, plain_rounds), times, model, fed, rounds)
        note = f"mean of {rounds} rounds from the first on"
        yield Timing(SUITE, f"{model}, a round", ours / rounds * 1e3, "ms", base / rounds * 1e3, note)
        ours, base = fastest_in_turn((our_run, plain_run), times, model, fed, rounds)
        note = f"{rounds} rounds, each evaluated, and what comes before the first"
        yield Timing(SUITE, f"{model}, in all", ours * 1e3, "ms", base * 1e3, note)


def fastest_in_turn(
    ways: Sequence[Callable[..., Callable[[], None]]], times: int, model: str, fed: Federation, rounds: int
) -> list[float]:
    """Return the seconds of each way in the fastest of its processes.

    Args:
        ways: What makes the work.
        times: The processes of each way.
        model: The network.
        fed: The federation.
        rounds: The rounds of a run.

    Returns:
        Seconds, way by way.
    """
    found: list[list[float]] = [[] for _ in ways]
    for _ in range(times):
        for way, seconds in zip(ways, found, strict=True):
            with BaselineProcess(way, model, fed, rounds) as work:
                seconds.append(work())
    return [min(seconds) for seconds in found]


def our_rounds(model: str, fed: Federation, rounds: int) -> Callable[[], None]:
    """Return some rounds of ours, with everything prepared before the first."""
    play = TimedRounds("fedavg", fed, model=model, device="cpu", rounds=rounds, **WORK)

    def work() -> None:
        with suitable_threads(play.simulation.net):
            for _ in range(rounds):
                play()

    return work


def plain_rounds(model: str, fed: Federation, rounds: int) -> Callable[[], None]:
    """Return some rounds of plain PyTorch, with everything prepared before the first."""
    play = plain_round(model, fed, WORK["cohort"], WORK["batch"], "cpu", "fp32")

    def work() -> None:
        for _ in range(rounds):
            play()

    return work


def our_run(model: str, fed: Federation, rounds: int) -> Callable[[], None]:
    """Return a whole run of ours."""

    def work() -> None:
        run("fedavg", fed, model, device="cpu", rounds=rounds, progress=False, **WORK)

    return work


def plain_run(model: str, fed: Federation, rounds: int) -> Callable[[], None]:
    """Return a whole run of plain PyTorch, which also scores a model on the test samples in every round."""

    def work() -> None:
        play = plain_round(model, fed, WORK["cohort"], WORK["batch"], "cpu", "fp32")
        module = make(model, fed.shape, fed.classes)
        x, y = (fed.data.test_x.float() / 255 - 0.5) / 0.25, fed.data.test_y
        for _ in range(rounds):
            play()
            with torch.no_grad():
                logits = module(x)
                float(F.cross_entropy(logits, y)), float((logits.argmax(1) == y).float().mean())

    return work
