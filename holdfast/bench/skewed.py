"""Rounds of clients that hold different numbers of samples, and several seeds that share steps, on a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from holdfast.bench.timing import Timing
from holdfast.bench.workload import images, simulation
from holdfast.core.turns import TurnTaker
from holdfast.data.federation import Federation, federate
from holdfast.engines.row_pool import Trainees
from holdfast.runs.setup import arithmetic
from holdfast.training.shared_rows import row_engine, share_rows
from holdfast.training.simulation import Simulation

ROUND = "A round of 10 clients, 100 steps each on average, batch 50, FedBug's CNN, TF32, no evaluation"
SEEDS = "Three seeds that share steps, the same, per client and step"
EPOCHS, SAMPLES, BATCH = 10, 500, 50
SKEWED = "dirichlet(0.3)"
SPLIT_SEED = 10  # with which the largest of ten clients has 2.2 times the mean


def rounds() -> Iterator[Timing]:
    """Time rounds of equal clients, of skewed clients, and of cohorts whose size is a matter of chance."""
    settings = {"method": "fedavg", "model": "cnn", "precision": "tf32"}
    for name, split, clients, who in (
        ("equal clients", "iid", 10, {"cohort": 10}),
        (SKEWED, SKEWED, 10, {"cohort": 10}),
        ("--participation 0.1 of 100 equal clients", "iid", 100, {"participation": 0.1}),
        (f"--participation 0.1 of 100 clients, {SKEWED}", SKEWED, 100, {"participation": 0.1}),
    ):
        with arithmetic("tf32"):
            made = prepared(dealt(split, clients, SPLIT_SEED), **settings, **who)
            ms, steps, first = timed(lambda t, made=made: alone(made, t), 12 if clients > 10 else 4)  # type: ignore[misc]
        note = f"{rows_of(made)} rows, {steps:.0f} client-steps a round; first round {first:.0f} s"
        yield Timing(ROUND, name, ms, note=note)


def seeds(number: int = 3) -> Iterator[Timing]:
    """Time several seeds of skewed clients that share steps, against equal clients in steps of the same width."""
    settings = {"method": "fedavg", "model": "cnn", "precision": "tf32", "cohort": 10}
    rows = None
    for name, split in ((SKEWED, SKEWED), ("equal clients", "iid")):
        with arithmetic("tf32"):
            made = [prepared(dealt(split, 10, seed), seed=seed, **settings) for seed in range(number)]
            ms, steps, first = timed(SharedRounds(made, rows), 4)
            rows = rows_of(made[0])
        yield Timing(SEEDS, name, ms / steps * 1e3, "us", note=f"{rows} rows; first round {first:.0f} s")


def dealt(split: str, clients: int, seed: int) -> Federation:
    """Return random images, dealt with this seed."""
    return federate(images((3, 32, 32), SAMPLES, clients).data, split, clients, seed)


def prepared(fed: Federation, **settings: Any) -> Simulation:
    """Return a run on the GPU."""
    method = settings.pop("method")
    return simulation(method, fed, batch=BATCH, epochs=EPOCHS, device="cuda", engine="vector", **settings)


def rows_of(made: Simulation) -> int:
    """Return how many rows a run's steps have."""
    engine = row_engine(made)
    return 0 if engine is None or engine.rows is None else engine.rows.width


def alone(made: Simulation, t: int) -> int:
    """Play round ``t`` and return how many steps all clients took together."""
    ids = made.play(t).cohort
    return int((-(-made.federation.deal.sizes[ids] // BATCH)).sum()) * EPOCHS


class SharedRounds:
    """Rounds of several runs that share steps; each call plays one of every run and returns the steps of all clients.

    Args:
        made: The runs.
        rows: The rows of a step; None: by their rule.
    """

    def __init__(self, made: Sequence[Simulation], rows: int | None) -> None:
        self.made = made
        self.asks: list[Callable[[Sequence[Trainees]], None]] = [lambda _: None for _ in made]
        self.pool = share_rows(made, [partial(self._submit, i) for i in range(len(made))], rows)

    def __call__(self, t: int) -> int:
        takers = [TurnTaker(partial(self._round, i, t)) for i in range(len(self.made))]
        asked = [taker.go() for taker in takers]
        while any(some is not None for some in asked):
            self.pool.train([one for some in asked for one in some or ()])
            asked = [None if some is None else taker.go() for taker, some in zip(takers, asked, strict=True)]
        for taker in takers:
            if taker.error is not None:
                raise taker.error
        return sum(taker.result or 0 for taker in takers)

    def _submit(self, run: int, trainees: Sequence[Trainees]) -> None:
        self.asks[run](trainees)

    def _round(self, run: int, t: int, ask: Callable[[Sequence[Trainees]], None]) -> int:
        self.asks[run] = ask
        return alone(self.made[run], t)


def timed(play: Callable[[int], int], rounds: int) -> tuple[float, float, float]:
    """Return the mean milliseconds and client-steps of some rounds, and the seconds of the first one.

    Args:
        play: Plays round ``t`` = 1, 2, ... and returns its client-steps.
        rounds: The rounds to time after the first, which compiles.

    Returns:
        Milliseconds, client-steps, seconds.
    """
    started = time.perf_counter()
    play(1)
    torch.cuda.synchronize()
    first, started = time.perf_counter() - started, time.perf_counter()
    steps = sum(play(t) for t in range(2, rounds + 2))
    torch.cuda.synchronize()
    return (time.perf_counter() - started) * 1e3 / rounds, steps / rounds, first
