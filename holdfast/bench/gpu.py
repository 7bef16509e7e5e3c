"""Local steps and whole rounds on a GPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

import holdfast
from holdfast.bench.hardware_limit import StepWork, least_time
from holdfast.bench.timing import Timing
from holdfast.bench.workload import TimedRounds, fastest, images, plain_round, simulation
from holdfast.data.federation import Federation
from holdfast.engines.row_pool import RowPool
from holdfast.engines.vector import Vector
from holdfast.runs.setup import arithmetic

STEP = "One local step of 10 clients, batch 50, on 32 x 32 images, against plain PyTorch"
SUM = "What a sum costs in one local step of 10 clients, batch 50, FedBug's CNN, TF32"
WHOLE = "Whole runs, evaluation every 10 rounds included"
CHECK = "Relative difference to the loop engine on the CPU, float64, three rounds of ragged clients"
COHORT, BATCH, SAMPLES, STEPS = 10, 50, 500, 100
MODELS = {
    "FedBug's CNN": ("cnn", "tf32"),
    "ResNet-18-GN, ImageNet stem": ("resnet18", "tf32"),
    "ResNet-18-GN, CIFAR stem": ("resnet18(stem=cifar)", "bf16"),
}
CHECKED = ("fedavg", "scaffold+fedbug(0.4)+clip(1)+decay", "fedagg", "fedmrur(rho=0.05)+fednlr", "fnr+moon")
SLOWEST = "fedmrur(rho=0.05)+fednlr+fedbug(0.4)"


def steps(only: str = "") -> Iterator[Timing]:
    """Time a round of 100 steps, everything around the steps included, per step, and plain PyTorch."""
    fed = images((3, 32, 32), SAMPLES, 100)
    for name, (model, precision) in MODELS.items():
        if only and only not in model:
            continue
        with arithmetic(precision):
            plain = plain_round(model, fed, COHORT, BATCH, "cuda", precision)
            plain()
            base = fastest(plain, 2, cuda=True) / 10
            ours, first, outside = timed("fedavg", model, precision, fed)
        limit = least_time(StepWork(model, fed.shape, COHORT, BATCH, 1), "cuda", precision)
        note = f"{limit}; {outside:.1%} of the round outside the steps; first round {first:.0f} s"
        yield Timing(STEP, f"{name}, {precision.upper()}", ours * 1e3, "ms", base * 1e3, note)


def timed(method: str, model: str, precision: str, fed: Federation) -> tuple[float, float, float]:
    """Return the seconds per step, those of the first round, which compiles, and the share of a round outside steps.

    Args:
        method: The method.
        model: The network.
        precision: The arithmetic.
        fed: The federation.

    Returns:
        Seconds per step, seconds of the first round, share of a round.
    """
    play = TimedRounds(
        method, fed, model=model, precision=precision, cohort=COHORT, batch=BATCH, epochs=10, device="cuda",
        engine="vector",
    )  # fmt: skip
    started = time.perf_counter()
    play()
    torch.cuda.synchronize()
    first = time.perf_counter() - started
    play()
    whole = fastest(play, 5, cuda=True)
    return whole / STEPS, first, 1 - fastest(lambda: steps_alone(play), 3, cuda=True) / whole


def steps_alone(play: TimedRounds) -> None:
    """Repeat a round's steps, and nothing else."""
    engine = play.simulation.engines[0]
    assert isinstance(engine, Vector)
    assert isinstance(engine.rows, RowPool)
    (step,) = engine.rows.made.values()
    step.state.k.zero_()
    for _ in range(STEPS):
        step.run()


def sums() -> Iterator[Timing]:
    """Time the slowest sum, and compare it with what its passes alone would cost.

    FedAvg's step is one forward and one backward pass. SAM adds the same again; the frozen global model, FedMRUR's
    teacher, adds a forward pass, a third of that.
    """
    fed = images((3, 32, 32), SAMPLES, 100)
    with arithmetic("tf32"):
        base, *_ = timed("fedavg", "cnn", "tf32", fed)
        slow, *_ = timed(SLOWEST, "cnn", "tf32", fed)
    yield Timing(SUM, "fedavg", base * 1e3)
    note = f"{slow / base:.2f} times fedavg, for 2 1/3 times the passes: {slow / base / (7 / 3) - 1:+.0%}"
    yield Timing(SUM, SLOWEST, slow * 1e3, note=note)


def runs(bug: int, mrur: int) -> Iterator[Timing]:
    """Time FedBug's and FedMRUR's settings over some rounds, and extrapolate to the papers' rounds."""
    fed = images((3, 32, 32), 500, 100)
    yield whole(
        "FedBug's CIFAR-10: 300 rounds, 10 of 100 clients, 10 epochs", 300, bug, fed, "fedbug(0.4)+mean(uniform)",
        "cnn", epochs=10, clip=10.0, weight_decay=1e-3,
    )  # fmt: skip
    fed = images((3, 32, 32), 250, 200)
    yield whole(
        "FedMRUR's CIFAR: 1600 rounds, 10 of 200 clients, 3 epochs", 1600, mrur, fed, "fedmrur(rho=0.05)", "resnet18",
        epochs=3, clip=10.0, weight_decay=1e-3,
    )  # fmt: skip


def whole(what: str, rounds: int, timed: int, fed: Federation, method: str, model: str, **settings: Any) -> Timing:
    """Time a run as users run it.

    Args:
        what: Its name in the table.
        rounds: The paper's rounds.
        timed: The rounds to time; two more come first.
        fed: The federation.
        method: The method.
        model: The network.
        settings: Other settings.

    Returns:
        The seconds of all rounds, extrapolated.
    """
    started = time.perf_counter()
    result = holdfast.run(
        method, fed, model, rounds=timed + 2, cohort=COHORT, batch=BATCH, precision="tf32", device="cuda",
        eval_every=10, **settings,
    )  # fmt: skip
    seconds = sum(r.seconds for r in result.history[2:])
    extra = time.perf_counter() - started - seconds
    note = f"{timed} rounds took {seconds:.1f} s; {extra:.0f} s more to start and compile"
    return Timing(WHOLE, what, seconds / timed * rounds, "s", note=note)


def check() -> Iterator[Timing]:
    """Compare the results of the replayed graph, plain and compiled, with those of the loop on the CPU."""
    fed = images((3, 8, 8), 30, 8, "dirichlet(0.5)", public=0.02)
    for method in CHECKED:
        found = []
        for settings in ({"device": "cpu", "engine": "loop"}, {"compile": False}, {"compile": True}):
            chosen: dict[str, Any] = {"device": "cuda", "engine": "vector", **settings}
            sim = simulation(method, fed, model="cnn", precision="fp64", cohort=4, batch=7, epochs=2, **chosen)
            for t in range(1, 4):
                sim.play(t)
            found.append((sim.server.w.cpu(), sim.net.initial.cpu()))
        (loop, start), (graph, _), (compiled, _) = found
        for name, w in (("graph", graph), ("compiled graph", compiled)):
            error = float((w - loop).norm() / (loop - start).norm())
            yield Timing(CHECK, f"{method}, {name}", error, "")
