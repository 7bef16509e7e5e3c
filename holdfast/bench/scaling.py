"""How the time and memory of a round grow with the number of clients, the cohort and the slice."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from holdfast.bench.timing import Timing
from holdfast.bench.workload import TimedRounds, fastest, images
from holdfast.data.federation import federate
from holdfast.data.user_arrays import from_clients

CLIENTS = "A round of 10 clients, by how many exist (scaffold, linear, 20 steps of batch 2)"
COHORT = "A round by the size of its cohort (fedavg, mlp, 1000 clients of 60 samples)"
DIGITS = [str(digit) for digit in range(10)]
ROUNDS = 9  # timed rounds of clients made on demand
PLACES = {"memory": "in memory", "disk": "on disk"}
DEMAND = "A round of 1,000 clients made on demand, 20 samples each, by how many exist (linear)"
MEMORY = "Peak memory above the start, by the slice (fedavg, mlp, a cohort of 64)"


def rows() -> Iterator[Timing]:
    """Time all of them."""
    yield from clients()
    yield from on_demand()
    yield from cohorts()
    yield from memory()


def clients() -> Iterator[Timing]:
    """Time a round of the same cohort in federations of several sizes."""
    for n in (100, 1_000, 10_000, 100_000):
        fed = images((1, 28, 28), 2 if n > 10_000 else 20, n)
        for states in PLACES:
            play = TimedRounds(
                "scaffold", fed, model="linear", cohort=10, steps=20, batch=2, device="cpu", states=states
            )
            play()
            yield Timing(CLIENTS, f"{n:,} clients, states {PLACES[states]}", fastest(play, 10) * 1e3)


def on_demand() -> Iterator[Timing]:
    """Time a round of 1,000 clients made on demand, each federation in its own process since a peak never falls."""
    for method, states in (("fedavg", "memory"), ("scaffold", "disk")):
        for n in (1_000, 10_000, 100_000, 1_000_000, 10_000_000):
            given = f"{method!r}, {states!r}, {n}"
            code = f"from holdfast.bench.scaling import rounds_on_demand; print(*rounds_on_demand({given}))"
            result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            seconds, busy, megabytes = map(float, result.stdout.split())
            where = f", states {PLACES[states]}" if method == "scaffold" else ""
            yield Timing(
                DEMAND,
                f"{method}{where}, {n:,} clients",
                seconds * 1e3,
                note=f"{busy * 1e3:.0f} ms of processor time, peak memory {megabytes:.0f} MB",
            )


def rounds_on_demand(method: str, states: str, clients: int, cohort: int = 1000) -> tuple[float, float, float]:
    """Return the seconds and the processor seconds of a round, and the most megabytes that the process has needed.

    The seconds are the median, since after a slow round the samples of the next one are already made.

    Args:
        method: The method.
        states: Where client states are kept.
        clients: The number of clients.
        cohort: How many of them take part in a round.

    Returns:
        Seconds, processor seconds and megabytes.
    """
    data = from_clients(random_client, random_client(2**32), clients=clients, classes=DIGITS, normalise=False)
    fed = federate(data)
    play = TimedRounds(
        method, fed, model="linear", cohort=cohort, epochs=1, batch=20, device="cpu", states=states, rounds=100
    )
    play()
    started = time.process_time()
    seconds = statistics.median(fastest(play, 1) for _ in range(ROUNDS))
    return seconds, (time.process_time() - started) / ROUNDS, status("VmHWM") / 1e3


def random_client(i: int) -> tuple[np.ndarray, np.ndarray]:
    """Make a client of 20 random images."""
    draw = np.random.default_rng(i)
    return draw.random((20, 784), dtype=np.float32), draw.integers(0, 10, 20)


def cohorts() -> Iterator[Timing]:
    """Time a round with cohorts of several sizes."""
    fed = images((1, 28, 28), 60, 1000)
    for cohort in (10, 20, 40, 80):
        play = TimedRounds("fedavg", fed, model="mlp", cohort=cohort, epochs=1, batch=32, device="cpu", engine="vector")
        play()
        yield Timing(COHORT, f"{cohort} clients", fastest(play, 5) * 1e3)


def memory() -> Iterator[Timing]:
    """Measure the peak memory of several slices, each in its own process since a peak never falls."""
    for width in (4, 8, 16, 32, 64):
        code = f"from holdfast.bench.scaling import peak; print(peak({width}))"
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        yield Timing(MEMORY, f"slice {width}", float(result.stdout), "MB")


def peak(width: int) -> float:
    """Return the megabytes that rounds in slices of this width need beyond what the process had before."""
    fed = images((1, 28, 28), 60, 100)
    play = TimedRounds(
        "fedavg", fed, model="mlp", cohort=64, epochs=1, batch=32, device="cpu", engine="vector", slice=width
    )
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far (Linux)
    before = status("VmRSS")
    for _ in range(3):
        play()
    return (status("VmHWM") - before) / 1e3


def status(name: str) -> int:
    """Return a number of kilobytes from the system's status of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))
