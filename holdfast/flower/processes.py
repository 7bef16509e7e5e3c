"""Processes that we start, and that end with us: each by its id, with whatever it has started itself."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import FrameType

MARK = "HOLDFAST_STARTED"  # in the environment of all we start: children of children are found by it
GRACE = 5.0  # seconds to end by oneself


class Processes:
    """``with Processes(env, logs) as p``: all that was started is gone at the end, also after an error or Ctrl-C."""

    def __init__(self, env: dict[str, str], logs: Path) -> None:
        self.word = secrets.token_hex(8)
        self.env, self.logs = env | {MARK: self.word}, logs
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a process under a name; its output goes to a log of that name."""
        with (self.logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                list(command), env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.running[name] = process
        return process

    def stop(self, *names: str) -> None:
        """End these processes, or all, and what they have started."""
        chosen = [self.running.pop(name) for name in names or list(self.running)]
        pids = {p.pid for p in chosen}
        pids |= {pid for pid, parents in family().items() if parents & pids}
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not names:
                pids |= self.marked()  # also what was started meanwhile
            _signal(alive(pids, chosen), number)
            deadline = time.monotonic() + GRACE
            while alive(pids, chosen) and time.monotonic() < deadline:
                time.sleep(0.05)
        for process in chosen:
            process.wait()

    def called(self, name: str) -> set[int]:
        """The processes among ours that run a command of this name, where the system lets us look."""
        found = set()
        for pid in self.marked():
            with suppress(OSError):
                if name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.add(pid)
        return found

    def marked(self) -> set[int]:
        """Whatever carries our mark, also where its parent is gone."""
        found, mark = set(), f"{MARK}={self.word}".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in path.read_bytes().split(b"\0"):
                    found.add(int(path.parent.name))
        return found

    def __enter__(self) -> Processes:
        self.before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        signal.signal(signal.SIGTERM, _interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self.before:
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not leave processes behind
        try:
            self.stop()
        finally:
            for number, handler in self.before.items():
                signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def family() -> dict[int, set[int]]:
    """The ancestors of every process."""
    text = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parent = {int(pid): int(ppid) for pid, ppid in (line.split() for line in text.splitlines())}
    found: dict[int, set[int]] = {}
    for pid in parent:
        found[pid], at = set(), parent[pid]
        while at > 1 and at in parent and at not in found[pid]:
            found[pid].add(at)
            at = parent[at]
    return found


def alive(pids: Iterable[int], own: Iterable[subprocess.Popen[bytes]]) -> set[int]:
    for process in own:
        process.poll()  # takes note of those that ended
    ended = {p.pid for p in own if p.returncode is not None}
    return {pid for pid in set(pids) - ended if _there(pid)}


def _there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def free_port() -> int:
    """A port of the loopback that nobody uses now."""
    with closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def listening(port: int) -> bool:
    with closing(socket.socket()) as s:
        s.settimeout(1.0)
        return s.connect_ex(("127.0.0.1", port)) == 0
