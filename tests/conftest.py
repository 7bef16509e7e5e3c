"""Settings of all tests: one thread, examples that are the same in every run, and a Ctrl-C that reaches processes."""

import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start
settings.register_profile("holdfast", deadline=None, derandomize=True)
settings.load_profile("holdfast")

# A shell's background job ignores it, and so would the processes that tests start and stop.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def sound_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four rounds with states at clients; two of six clients are drawn in a round."""
    from helpers.commands import TINY, good  # here: not every test needs the command line

    folder = tmp_path_factory.mktemp("sound") / "run"
    good("run", "scaffold", *TINY, "--rounds", "4", "--out", str(folder))
    return folder


@pytest.fixture
def run_copy(sound_run: Path, elsewhere: None) -> Path:
    """A copy of that run to be damaged, in an empty folder."""
    shutil.copytree(sound_run, "run")
    return Path("run")
