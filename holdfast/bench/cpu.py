"""Rounds on a CPU: 60000 MNIST-shaped samples, 100 clients, 10 per round, one epoch of batch 32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.bench import short_runs
from holdfast.bench.baseline_process import BaselineProcess
from holdfast.bench.hardware_limit import StepWork, least_time
from holdfast.bench.peers import compare
from holdfast.bench.timing import Timing
from holdfast.bench.workload import TimedRounds, fastest, images, plain_round
from holdfast.data.federation import Federation

SUITE = "A round on the CPU against plain PyTorch (100 clients of 600 samples, 10 per round, 1 epoch, batch 32)"
PEERS = "The same round in other frameworks"
COHORT, BATCH = 10, 32
TURN = 3  # rounds at a time: in a run they also follow each other
# model, how many turns each way gets, and the ways to run it
CASES: list[tuple[str, int, dict[str, dict[str, Any]]]] = [
    ("linear", 40, {"vector, compiled": {"engine": "vector", "compile": True}, "vector": {"engine": "vector"}}),
    ("mlp", 25, {"vector, compiled": {"engine": "vector", "compile": True}, "vector": {"engine": "vector"}}),
    ("mnist-cnn", 3, {"loop": {"engine": "loop"}, "loop, bf16": {"engine": "loop", "precision": "bf16"}}),
]


def rows() -> Iterator[Timing]:
    """Time plain PyTorch, in its own process, and ours in turn, so that a busy moment of the machine affects both."""
    fed = images((1, 28, 28), 600, 100)
    for model, times, ways in CASES:
        yield from case(model, times, ways, fed)
    yield from short_runs.rows(fed)


def case(model: str, times: int, ways: dict[str, dict[str, Any]], fed: Federation) -> Iterator[Timing]:
    """Time one model.

    Args:
        model: The network.
        times: Turns of the baseline and of each way.
        ways: Settings of ours, by name.
        fed: The federation.

    Returns:
        A line for each way.
    """
    shared = {"model": model, "cohort": COHORT, "epochs": 1, "batch": BATCH, "device": "cpu"}
    ours = {way: TimedRounds("fedavg", fed, **shared, **settings) for way, settings in ways.items()}
    best = dict.fromkeys(["plain", *ours], float("inf"))
    with BaselineProcess(plain_round, model, fed, COHORT, BATCH, "cpu", "fp32") as plain:
        plain()
        for play in ours.values():
            play()  # compilation, threads, first touch of memory
        for _ in range(times):
            best["plain"] = min(best["plain"], plain(TURN))
            for way, play in ours.items():
                best[way] = min(best[way], fastest(play, TURN))
    steps = -(-int(fed.deal.sizes.max()) // BATCH)
    limit = least_time(StepWork(model, fed.shape, COHORT, BATCH, steps), device="cpu", precision="fp32")
    for way in ours:
        yield Timing(SUITE, f"{model}, {way}", best[way] * 1e3, "ms", best["plain"] * 1e3, limit)


def others() -> Iterator[Timing]:
    """Time the same round in the frameworks that are installed, each at its best, and our fastest way in fp32."""
    fed = images((1, 28, 28), 600, 100)
    models = [model for model, _, _ in CASES]
    ours = {}
    for model, times, ways in CASES:
        settings = next(iter(ways.values()))
        play = TimedRounds("fedavg", fed, model=model, cohort=COHORT, epochs=1, batch=BATCH, device="cpu", **settings)
        play()
        ours[model] = fastest(play, times * TURN) * 1e3
    for result in compare(models, rounds=5):
        if "error" in result:
            print(f"{result['peer']} {result.get('model', '')}: {result['error']}", flush=True)
            continue
        what = f"{result['model']}, {result['peer']} {result['version']}"
        yield Timing(PEERS, what, ours[result["model"]], "ms", result["seconds_per_round"] * 1e3)
