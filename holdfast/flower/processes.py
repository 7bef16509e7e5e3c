"""Child processes that end with this one: each is stopped by its id, together with whatever it has started.

If this process is killed, a watchdog stops them.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import FrameType

from holdfast.core.errors import HoldfastError
from holdfast.flower import watchdog
from holdfast.flower.watchdog import MARK, marked

GRACE = 5.0  # seconds that a process has to end before it is killed


def require_process_control() -> None:
    """Raise an error on a system that cannot stop a process with all that it has started."""
    if not hasattr(os, "killpg"):
        raise HoldfastError("deploy local needs the processes of Linux or macOS: on Windows, run it in WSL")


class Processes:
    """Processes that are stopped when the ``with`` block ends: also after an error or Ctrl-C, or if we are killed.

    Attributes:
        env: The environment of every process.
        logs: The temporary folder of their logs. It is deleted with everything in it if this process is killed.
        running: The processes by name.
    """

    def __init__(self, env: dict[str, str], logs: Path) -> None:
        self.token = secrets.token_hex(8)
        self.env, self.logs = env | {MARK: self.token}, logs
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.watchdog: subprocess.Popen[bytes] | None = None

    def start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a process under a name; its output goes to the log of that name."""
        with (self.logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                list(command), env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.running[name] = process
        self._tell_watchdog(process.pid)
        return process

    def stop(self, *names: str) -> None:
        """Stop these processes, or all of them, and whatever they have started."""
        chosen = [self.running.pop(name) for name in names or list(self.running)]
        pids = {p.pid for p in chosen}
        pids |= {pid for pid, parents in ancestors().items() if parents & pids}
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not names:
                pids |= marked(self.token)  # they may have started others meanwhile
            _signal(alive(pids, chosen), number)
            deadline = time.monotonic() + GRACE
            while alive(pids, chosen) and time.monotonic() < deadline:
                time.sleep(0.05)
        for process in chosen:
            process.wait()

    def running_command(self, name: str) -> set[int]:
        """Return the ids of our processes that run this command, as far as the system lets us see them."""
        pids = set()
        for pid in marked(self.token):
            with suppress(OSError):
                if name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    pids.add(pid)
        return pids

    def _start_watchdog(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", "-S", watchdog.__file__, self.token, str(self.logs.absolute())]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _tell_watchdog(self, pid: int) -> None:
        if self.watchdog is not None and self.watchdog.stdin is not None:
            with suppress(OSError):  # without a watchdog the processes still end in the usual ways
                self.watchdog.stdin.write(f"{pid}\n".encode())
                self.watchdog.stdin.flush()

    def _stop_watchdog(self) -> None:
        """End the watchdog by its id: there is nothing left to stop, and the logs are still needed."""
        if self.watchdog is not None:
            self.watchdog.kill()
            self.watchdog.communicate()
            self.watchdog = None

    def __enter__(self) -> Processes:
        self.before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        self.watchdog = self._start_watchdog()
        signal.signal(signal.SIGTERM, _interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self.before:
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not leave processes behind
        try:
            self.stop()
            self._stop_watchdog()
        finally:
            for number, handler in self.before.items():
                signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def ancestors() -> dict[int, set[int]]:
    """Return the ids of the ancestors of every process."""
    text = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parent = {int(pid): int(ppid) for pid, ppid in (line.split() for line in text.splitlines())}
    above: dict[int, set[int]] = {}
    for pid in parent:
        above[pid], at = set(), parent[pid]
        while at > 1 and at in parent and at not in above[pid]:
            above[pid].add(at)
            at = parent[at]
    return above


def alive(pids: Iterable[int], children: Iterable[subprocess.Popen[bytes]]) -> set[int]:
    """Return those processes that still run; ``children`` are the ones that this process has started itself."""
    for process in children:
        process.poll()  # a child that has ended must be collected
    ended = {p.pid for p in children if p.returncode is not None}
    return {pid for pid in set(pids) - ended if _exists(pid)}


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    return True


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def free_port() -> int:
    """Return a port of the loopback that is not in use."""
    with closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def listening(port: int) -> bool:
    """Tell whether a process accepts connections at a port of the loopback."""
    with closing(socket.socket()) as s:
        s.settimeout(1.0)
        return s.connect_ex(("127.0.0.1", port)) == 0
