"""What it costs to evaluate the model after every round, on 10,000 test images."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from holdfast.bench.skewed import CNN, NAMES, RESNET, SAMPLES, wait
from holdfast.bench.timing import Timing
from holdfast.bench.workload import TimedRounds, fastest, images
from holdfast.runs.setup import arithmetic
from holdfast.training.evaluation import evaluate
from holdfast.training.simulation import Simulation

SUITE = "An evaluation on 10,000 images: the share of a round of 10 equal clients, 100 steps each, with it"
TESTS, TIMES = 10_000, 5


def rows(only: str = "", device: str = "cuda") -> Iterator[Timing]:
    """Time evaluations and rounds.

    Args:
        only: Leave out other networks than those whose name contains this.
        device: Where to run; anything but a GPU is for trials.

    Yields:
        A line for each network.
    """
    fed = images((3, 32, 32), SAMPLES, 100, tests=TESTS)
    for model in (CNN, RESNET):
        if only not in model:
            continue
        precision = "tf32" if device == "cuda" else "fp32"
        with arithmetic(precision):
            play = TimedRounds(
                "fedavg", fed, model=model, precision=precision, cohort=10, batch=50, epochs=10, device=device,
                engine="vector", compile=True,
            )  # fmt: skip
            made = play.simulation
            for work in (play, made.judge, made.judge):  # what comes first compiles and captures
                work()
            wait()
            round, judge, plain = (
                fastest(work, TIMES, device == "cuda") for work in (play, made.judge, partial(plain_judge, made))
            )
        note = f"{judge * 1e3:.3g} ms, uncaptured {plain * 1e3:.3g} ms; the round {round * 1e3:.3g} ms"
        ours, base = (100 * seconds / (seconds + round) for seconds in (judge, plain))
        yield Timing(SUITE, NAMES[model], ours, "%", base, note)


def plain_judge(made: Simulation) -> None:
    """Evaluate without a captured pass."""
    evaluate(made.served_net, made.server.served(), made.federation, made.metrics)
