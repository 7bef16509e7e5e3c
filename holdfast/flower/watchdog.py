"""A small process that outlives its parent only to stop what the parent has started.

A process that is killed cannot stop its children. So the parent starts this file as a script and keeps a pipe to it
open. The pipe closes when the parent ends, for whatever reason. Then every process that carries the parent's mark is
killed, and the parent's temporary folder is deleted.

The script imports no other module of the package, so that it starts at once and in any environment.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "HOLDFAST_STARTED"  # set in the environment of all that the parent starts, so that grandchildren can be found
PAUSE = 0.2  # seconds between searches: a process may be starting another while it is killed
QUIET = 5  # searches in a row that must find no process before the work is done
LONGEST = 30.0  # seconds after which the search ends in any case


def marked(token: str) -> set[int]:
    """Return the ids of all processes that carry a mark, even if their parent is gone; needs ``/proc``."""
    pids, mark = set(), f"{MARK}={token}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                pids.add(int(path.parent.name))
    return pids


def kill_all(token: str, sessions: set[int]) -> None:
    """Kill every process that carries a mark, and the processes that lead these sessions with their groups."""
    for pid in sessions:
        with suppress(OSError):
            if os.getsid(pid) == pid:  # otherwise the id now belongs to another process
                os.killpg(pid, signal.SIGKILL)
    deadline, quiet = time.monotonic() + LONGEST, 0
    while quiet < QUIET and time.monotonic() < deadline:
        pids = marked(token)
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        quiet = 0 if pids else quiet + 1
        time.sleep(PAUSE)


def watch(token: str, folder: str) -> None:
    """Wait for the end of the parent, then stop what it has left.

    Standard input has the ids of the processes that the parent has started, one per line. The parent deletes its folder
    itself unless it was killed.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sessions = {int(line) for line in sys.stdin if line.strip().isdigit()}
    kill_all(token, sessions)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watch(*sys.argv[1:3])
