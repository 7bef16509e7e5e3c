"""How long the first round takes in a new process, where its step is traced and compiled: with an empty cache, then
with what the process before has left there.

    python -m holdfast.bench.first_round cnn cuda

prints one line of JSON.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator

from holdfast.bench.measured_process import answer
from holdfast.bench.timing import Timing

SUITE = "The first round of 10 equal clients, 10 steps each, batch 50, in a new process"
MODELS = ("cnn", "resnet18")


def rows(only: str = "", device: str = "cuda") -> Iterator[Timing]:
    """Time the first round of each network in two processes, one after the other.

    Args:
        only: Leave out other networks than those whose name contains this.
        device: Where to run.

    Yields:
        Two lines for each network.
    """
    for model in (model for model in MODELS if only in model):
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as cache:
            env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache, "HOLDFAST_CACHE": cache}
            env.pop("TRITON_CACHE_DIR", None)
            for state in ("empty", "warm"):
                found = answer([sys.executable, "-m", __name__, model, device], env)
                note = f"traced in {found['traced']:.1f} s, compiled in {found['compiled']:.1f} s; a later round "
                note += f"{found['later'] * 1e3:.0f} ms; before the first {found['before']:.1f} s"
                yield Timing(SUITE, f"{model} on {device}, {state} cache", found["first"], "s", note=note)


class StepNotes(logging.Handler):
    """Adds up the seconds that messages of the engine name, by the first word of the message."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.seconds = {"traced": 0.0, "compiled": 0.0}

    def emit(self, record: logging.LogRecord) -> None:
        word = str(record.msg).partition(" ")[0]
        if word in self.seconds and isinstance(record.args, tuple):
            self.seconds[word] += float(record.args[0])  # type: ignore[arg-type]


def measure(model: str, device: str) -> dict[str, float]:
    """Play two rounds, and return the seconds of the first, of tracing and compiling in it, and of the second."""
    from holdfast.bench.skewed import wait
    from holdfast.bench.workload import TimedRounds, fastest, images
    from holdfast.runs.setup import arithmetic

    notes, log = StepNotes(), logging.getLogger("holdfast.step")
    log.setLevel(logging.DEBUG)
    log.addHandler(notes)
    log.propagate = False
    precision = "tf32" if device == "cuda" else "fp32"
    with arithmetic(precision):
        play = TimedRounds(
            "fedavg", images((3, 32, 32), 50, 10), model=model, precision=precision, cohort=10, batch=50, epochs=10,
            device=device, engine="vector", compile=True,
        )  # fmt: skip
        wait()
        before = time.perf_counter() - STARTED
        first, later = (fastest(play, 1, device == "cuda") for _ in range(2))
    return {"first": first, "later": later, "before": before, **notes.seconds}


STARTED = time.perf_counter()

if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(*sys.argv[1:])) + "\n")
