"""What checkpoints cost: how much of a run's time it spends on them, instead of on its rounds."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from holdfast.bench.timing import Timing
from holdfast.bench.workload import images
from holdfast.data.federation import Federation
from holdfast.method.config import Config
from holdfast.method.method import as_method
from holdfast.runs.checkpoint_writer import CheckpointWriter
from holdfast.runs.folder import RunFolder
from holdfast.runs.run import carry_out
from holdfast.runs.run_options import RunOptions
from holdfast.training.round_record import RoundRecord

SUITE = (
    "A checkpoint after every round: the share of the time in which the run waits for it (10 clients of 100, 1 epoch)"
)
ON_GPU = "The same on the GPU (FedBug's CNN, 10 clients of 100, 10 epochs of 10 steps, TF32)"
CASES = (("fedavg", "mlp"), ("scaffold", "mlp"), ("scaffold", "mnist-cnn"))
ROUNDS = 12
T = TypeVar("T")
WARM_UP = 2  # rounds that are not counted


class TimedWriter(CheckpointWriter):
    """Adds up the time for which it keeps a run waiting.

    Attributes:
        seconds: That time, since it was last set to zero.
        prompt: Whether the run waits until everything is on the disk.
    """

    def __init__(self, prompt: bool) -> None:
        super().__init__()
        self.seconds, self.prompt = 0.0, prompt

    def keep(self, copy: Callable[[], T], write: Callable[[T], None]) -> None:
        started = time.perf_counter()
        super().keep(copy, write)
        if self.prompt:
            self.wait()
        self.seconds += time.perf_counter() - started


class TimedFolder(RunFolder):
    """A run folder that adds the time for a line of the history to that of the checkpoints."""

    def __init__(self, path: Path, writer: TimedWriter) -> None:
        super().__init__(path)
        self.writer = writer

    def append(self, record: RoundRecord) -> None:
        started = time.perf_counter()
        super().append(record)
        self.writer.seconds += time.perf_counter() - started


def rows(samples: int = 600) -> Iterator[Timing]:
    """Time runs in the current folder, which is on the disk that runs are kept on.

    Args:
        samples: Images per client.

    Returns:
        A line for each method and network; the baseline waits until every checkpoint is on the disk.
    """
    fed = images((1, 28, 28), samples, 100)
    for method, model in CASES:
        yield case(SUITE, method, model, fed)


def rows_on_gpu() -> Iterator[Timing]:
    """Time the same on a GPU; needs the package that writes checkpoints."""
    if find_spec("safetensors") is None:
        print("\nskipped: checkpoints on the GPU, which need safetensors: pip install safetensors", flush=True)
        return
    fed = images((3, 32, 32), 500, 100)
    for method in ("fedavg", "scaffold"):
        yield case(ON_GPU, method, "cnn", fed, device="cuda", precision="tf32", epochs=10, batch=50)


def case(suite: str, method: str, model: str, fed: Federation, **settings: Any) -> Timing:
    """Time the checkpoints of one method and network, against waiting for each of them."""
    (base, _), (ours, seconds) = (share(method, model, fed, prompt, **settings) for prompt in (True, False))
    return Timing(suite, f"{method}, {model}", ours, "%", base, f"a round takes {1000 * seconds:.0f} ms")


def share(method: str, model: str, fed: Federation, prompt: bool, **settings: Any) -> tuple[float, float]:
    """Return the percentage of a run's time in which it waits for checkpoints, and the seconds of a round."""
    usual: dict[str, Any] = {"device": "cpu", "epochs": 1, "cohort": 10, "rounds": ROUNDS, "eval_every": ROUNDS}
    config = Config(method=method, model=model, clients=fed.clients, **(usual | settings))
    writer, ends = TimedWriter(prompt), list[float]()

    def on_round(record: RoundRecord) -> None:
        ends.append(time.perf_counter())
        if record.round == WARM_UP:
            writer.seconds = 0.0

    with tempfile.TemporaryDirectory(dir=".", prefix=".holdfast-bench-") as folder:
        place = TimedFolder(Path(folder) / "run", writer)
        carry_out(config, as_method(method), fed, None, RunOptions(place, on_round=on_round, writer=lambda: writer))
    whole = ends[-2] - ends[WARM_UP - 1]  # without the last round, whose evaluation is not the usual one
    return 100 * writer.seconds / (ends[-1] - ends[WARM_UP - 1]), whole / (ROUNDS - WARM_UP - 1)
