"""Commands in processes of their own that can be killed: forks of one process that has already imported everything."""

from __future__ import annotations

import importlib
import os
import pkgutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LONGEST = 90.0  # seconds after which a command counts as hanging
HANGS = -1000


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code, negative for a signal, and its stderr."""

    code: int
    err: str

    @property
    def refused(self) -> bool:
        """Whether it is an error as promised: exit code 2 and exactly one line."""
        return self.code == 2 and self.err.startswith("holdfast: ") and self.err.count("\n") == 1

    def __str__(self) -> str:
        how = "hangs" if self.code == HANGS else f"exit code {self.code}"
        lines = self.err.strip().splitlines()
        return f"{how}, {len(lines)} lines on stderr: {lines[-1][:300] if lines else ''}"


class Child:
    """A forked process that calls ``action``; its stderr goes to a file, its stdout nowhere."""

    def __init__(self, action: Callable[[], None], before: Callable[[], None] = lambda: None) -> None:
        self.err = tempfile.TemporaryFile()  # noqa: SIM115 (closed in wait)
        self.pid = os.fork()
        if self.pid == 0:
            self._be_the_child(action, before)
        self.code: int | None = None

    def _be_the_child(self, action: Callable[[], None], before: Callable[[], None]) -> None:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(self.err.fileno(), 2)
            before()
            action()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def running(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is None

    def kill(self) -> None:
        if self.running():
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, seconds: float = LONGEST) -> Ended:
        """Wait for the end; kill a process that takes longer than ``seconds``."""
        end = time.monotonic() + seconds
        while self.running() and time.monotonic() < end:
            time.sleep(0.005)
        hangs = self.running()
        while self.running():
            self.kill()
            time.sleep(0.005)
        self.err.seek(0)
        text = self.err.read().decode(errors="replace")
        self.err.close()
        return Ended(HANGS if hangs else self.code or 0, text)


def start(*args: str | Path, before: Callable[[], None] = lambda: None) -> Child:
    """Start a ``holdfast`` command."""
    from holdfast.cli.main import main

    return Child(lambda: main([str(arg) for arg in args]), before)


def holdfast(*args: str | Path, before: Callable[[], None] = lambda: None) -> Ended:
    """Run a ``holdfast`` command to its end."""
    return start(*args, before=before).wait()


def preload() -> None:
    """Import what the commands need, so that a fork starts at once. Nothing is computed: that could start threads."""
    import holdfast

    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("torch._dynamo", "torch._functorch.eager_transforms", "sklearn.datasets", "helpers.flower_toys"):
        importlib.import_module(name)
