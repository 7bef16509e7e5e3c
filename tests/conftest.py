"""Settings of all tests: one thread, examples that are the same in every run, and a Ctrl-C that reaches processes."""

import signal
from pathlib import Path

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("holdfast", deadline=None, derandomize=True)
settings.load_profile("holdfast")

# A shell's background job ignores it, and so would the processes that tests start and stop.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
