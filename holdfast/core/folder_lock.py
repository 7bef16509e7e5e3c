"""A folder for one command at a time: run, compare, reproduce and the server of a deployment.

The lock is a small file in the folder that names its owner: host, process, start and command. On one host the system
itself releases the lock of a process that dies, so that a dead owner's lock is taken over at once. Other hosts that
share the disk may not see that lock; for them the owner touches the file every few seconds, and a lock that was not
touched for a minute is taken over.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from holdfast.core.errors import HoldfastError
from holdfast.core.files import ASIDE
from holdfast.core.system_lock import lock_exclusively

LOCK = ".lock"
HEARTBEAT = 5.0  # seconds between two touches of the file
STALE = 60.0  # seconds without a touch after which the owner on another host counts as dead


@dataclass(frozen=True)
class LockOwner:
    """Who holds a lock."""

    host: str
    boot: str  # tells two machines, or two starts of one, apart if they have the same name
    pid: int
    started: str
    command: str

    @classmethod
    def this_process(cls) -> LockOwner:
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])[:200]
        return cls(platform.node(), boot_id(), os.getpid(), time.strftime("%Y-%m-%d %H:%M:%S"), command)

    @property
    def here(self) -> bool:
        return (self.host, self.boot) == (platform.node(), boot_id())

    def __str__(self) -> str:
        place = "" if self.here else f" on {self.host}"
        return f"process {self.pid}{place}, started {self.started}"


class FolderInUse(HoldfastError):
    """Another command that is alive has the folder."""


class FolderLock:
    """Reserves a folder within ``with``; an owner that is alive is named in a one-line error."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK
        self.file: IO[str] | None = None
        self.made_folder = False
        self.owner: LockOwner | None = None
        self.released = threading.Event()

    def __enter__(self) -> FolderLock:
        self.made_folder = not self.path.parent.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = self._acquire()
        self.file.seek(0)
        self.file.truncate()
        self.owner = LockOwner.this_process()
        self.file.write(json.dumps(asdict(self.owner)) + "\n")
        self.file.flush()
        threading.Thread(target=self._touch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        if self.file is not None:
            try:
                self.path.unlink(missing_ok=True)
            except PermissionError:  # Windows deletes no open file
                self.file.close()
                with suppress(OSError):  # another command has it now
                    self.path.unlink(missing_ok=True)
            self.file.close()
        if self.made_folder:
            with suppress(OSError):  # not empty: it is used
                self.path.parent.rmdir()

    def check(self) -> None:
        """Raise an error if another host has taken the folder, since this process was suspended for over a minute."""
        if self.file is None or not same_file(self.file, self.path) or self._named() != self.owner:
            raise HoldfastError(
                f"{self.path.parent} was taken over by another command while this one was suspended: leave it to "
                "the other"
            )

    def _named(self) -> LockOwner | None:
        """Return whom the file names now; it is opened anew, which shared file systems and other threads ask for."""
        try:
            with self.path.open(encoding="utf-8") as file:
                return read_owner(file)
        except OSError:
            return None

    def _acquire(self) -> IO[str]:
        """Open the file and lock it; the file may be deleted by its owner meanwhile, then it is opened again."""
        while True:
            file = self.path.open("a+", encoding="utf-8")
            owner = read_owner(file)
            locked = lock_exclusively(file)
            if locked is False:
                file.close()
                raise self._taken(owner)
            if not same_file(file, self.path):
                file.close()
                continue
            owner = read_owner(file)
            if still_counts(owner, self.path, bool(locked)):
                file.close()
                raise self._taken(owner)
            return file

    def _taken(self, owner: LockOwner | None) -> FolderInUse:
        who = f" ({owner})" if owner else ""
        return FolderInUse(f"{self.path.parent} is in use by another command{who}: wait until it ends, or stop it")

    def _touch(self) -> None:
        while not self.released.wait(HEARTBEAT):
            try:
                os.utime(self.path)
            except OSError:
                return


def boot_id() -> str:
    """Return a word that identifies this start of this machine, where the system has one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def seconds_since_touched(path: Path) -> float:
    """Return how long ago a file was touched by the clock of its file system: those of two hosts may differ."""
    touched = path.stat().st_mtime
    probe = path.with_name(path.name + ASIDE)
    try:
        probe.touch()
        now = probe.stat().st_mtime
        probe.unlink()
    except OSError:  # the folder cannot be written
        now = time.time()
    return now - touched


def read_owner(file: IO[str]) -> LockOwner | None:
    """Return who a lock file names; None if it names nobody."""
    try:
        file.seek(0)
        found = json.loads(file.read() or "{}")
        return LockOwner(**found) if isinstance(found, dict) else None
    except (ValueError, TypeError, OSError):
        return None


def still_counts(owner: LockOwner | None, path: Path, locked: bool) -> bool:
    """Tell whether the owner that a lock file names may be alive, though the system did not refuse the lock.

    Args:
        owner: Who the file names.
        path: The file.
        locked: Whether the system has locks here: then an owner on this host is dead.

    Returns:
        Whether to leave the folder to the owner.
    """
    if owner is None or (owner.here and (locked or owner.pid == os.getpid())):
        return False
    return seconds_since_touched(path) < STALE


def same_file(file: IO[str], path: Path) -> bool:
    """Tell whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False
