"""How long a user waits for help, and for the first step."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast.bench.timing import Timing
from holdfast.data.sources import data_folder, source

SUITE = "Start"
FIRST = """
import time, pathlib
import holdfast
from holdfast.runs.setup import prepare_simulation
from holdfast.method.config import Config
from holdfast.method.method import as_method
config = Config(data="cifar10", data_dir={folder!r}, model="cnn", clients=100, cohort=2, steps=1, device="cpu")
prepare_simulation(config, as_method("fedavg"), None, None).play(1)
"""


def rows(data_dir: Path | None) -> Iterator[Timing]:
    """Time each start in a new process, the fastest of three."""
    yield Timing(SUITE, "holdfast --help", command("from holdfast.cli import main; main(['--help'])"), "s")
    folder = data_folder(data_dir)
    if source("cifar10").missing(folder):
        print(
            f"\nskipped: the first and second start on CIFAR-10, which is not in {folder}; give its folder with "
            "--data-dir, or fetch it: holdfast data fetch cifar10",
            flush=True,
        )
        return
    with tempfile.TemporaryDirectory() as cache:
        env = os.environ | {"HOLDFAST_CACHE": cache}
        code = FIRST.format(folder=str(folder))
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, env=env)
        yield Timing(SUITE, "CIFAR-10, first start to the end of the first step", time.perf_counter() - started, "s")
        yield Timing(SUITE, "CIFAR-10, second start to the end of the first step", command(code, env), "s")


def command(code: str, env: dict[str, str] | None = None) -> float:
    """Return the seconds that a process with this Python code takes, the least of three."""
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, env=env, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - started)
    return best
