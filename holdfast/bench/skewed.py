"""Rounds of clients that hold different numbers of samples, and several seeds that share steps, on a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

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
SEEDS = "Three seeds that share steps, per client and step, against equal clients in steps of the same width, TF32"
EPOCHS, SAMPLES, BATCH, SEEDS_AT_ONCE = 10, 500, 50, 3
SKEWED = "dirichlet(0.3)"
SPLIT_SEED = 10  # with which the largest of ten clients has 2.2 times the mean
CNN, RESNET = "cnn", "resnet18"
NAMES = {CNN: "FedBug's CNN", RESNET: "ResNet-18-GN, ImageNet stem"}


class TimedClients(NamedTuple):
    """Whose rounds are timed.

    Attributes:
        split: How the samples are dealt.
        number: The clients of the federation, 500 samples each on average.
        who: The setting that decides who takes part in a round.
        rounds: The rounds to time: more where the size of a cohort is a matter of chance.
    """

    split: str
    number: int
    who: dict[str, Any]
    rounds: int

    @property
    def text(self) -> str:
        """A name for tables."""
        split = "equal clients" if self.split == "iid" else self.split
        return split if self.number == 10 else f"--participation 0.1 of {self.number} clients, {split}"


ALL = {"cohort": 10}
SOME = {"participation": 0.1}
ALONE = [TimedClients(split, n, who, k) for n, who, k in ((10, ALL, 4), (100, SOME, 12)) for split in ("iid", SKEWED)]
SHARED = [
    (CNN, TimedClients(SKEWED, 10, ALL, 4)),
    (CNN, TimedClients(SKEWED, 100, SOME, 8)),
    (RESNET, TimedClients(SKEWED, 10, ALL, 2)),
]


def rounds(only: str = "", device: str = "cuda") -> Iterator[Timing]:
    """Time rounds of equal clients, of skewed clients, and of cohorts whose size is a matter of chance.

    Args:
        only: Leave out other networks than those whose name contains this.
        device: Where to run; anything but a GPU is for trials.

    Yields:
        A line for each kind of clients.
    """
    if only not in CNN:
        return
    for clients in ALONE:
        with arithmetic("tf32"):
            made = prepared(CNN, clients, SPLIT_SEED, device)
            ms, steps, first = timed(partial(alone, made), clients.rounds)
        note = f"{rows_of(made)} rows, {steps:.0f} client-steps a round; first round {first:.1f} s"
        yield Timing(ROUND, clients.text, ms, note=note)


def seeds(only: str = "", device: str = "cuda") -> Iterator[Timing]:
    """Time several seeds of skewed clients that share steps, and of equal clients in steps of the same width.

    Args:
        only: Leave out other networks than those whose name contains this.
        device: Where to run; anything but a GPU is for trials.

    Yields:
        A line for each network and kind of clients.
    """
    for model, clients in SHARED:
        if only in model:
            made = SharedRounds([prepared(model, clients, seed, device) for seed in range(SEEDS_AT_ONCE)])
            us, first = per_step(made, clients.rounds)
            rows, slots = made.pool.width, made.slots
            iid = clients._replace(split="iid")
            made = SharedRounds([prepared(model, iid, seed, device) for seed in range(SEEDS_AT_ONCE)], rows, slots)
            equal, _ = per_step(made, clients.rounds)
            note = f"{rows} rows; {us / equal:.3g} times equal clients; first round {first:.1f} s"
            yield Timing(SEEDS, f"{NAMES[model]}, {clients.text}", us, "us", equal, note)


def per_step(made: SharedRounds, rounds: int) -> tuple[float, float]:
    """Return the microseconds per client and step of runs that share steps, and the seconds of the first round."""
    with arithmetic("tf32"):
        ms, steps, first = timed(made, rounds)
        return ms / steps * 1e3, first


def prepared(model: str, clients: TimedClients, seed: int, device: str) -> Simulation:
    """Return a run of some clients."""
    fed = dealt(clients.split, clients.number, seed)
    return simulation(
        "fedavg", fed, model=model, precision="tf32" if device == "cuda" else "fp32", seed=seed, batch=BATCH,
        epochs=EPOCHS, device=device, engine="vector", compile=True, **clients.who,
    )  # fmt: skip


def dealt(split: str, clients: int, seed: int) -> Federation:
    """Return random images, dealt with this seed."""
    return federate(images((3, 32, 32), SAMPLES, clients).data, split, clients, seed)


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
        slots: The most steps of a client for which a step is made; None: those of these runs.

    Attributes:
        pool: The rows.
        slots: The most steps of a client.
    """

    def __init__(self, made: Sequence[Simulation], rows: int | None = None, slots: int | None = None) -> None:
        self.made = made
        self.asks: list[Callable[[Sequence[Trainees]], None]] = [lambda _: None for _ in made]
        self.pool = share_rows(made, [partial(self._submit, i) for i in range(len(made))], rows)
        engines = [engine for engine in map(row_engine, made) if engine is not None]
        self.slots = slots or max(engine.shape.slots for engine in engines if engine.shape is not None)
        for engine in engines:
            assert engine.rows is not None
            engine.share(engine.rows, self.slots)

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
    wait()
    first, started = time.perf_counter() - started, time.perf_counter()
    steps = sum(play(t) for t in range(2, rounds + 2))
    wait()
    return (time.perf_counter() - started) * 1e3 / rounds, steps / rounds, first


def wait() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
