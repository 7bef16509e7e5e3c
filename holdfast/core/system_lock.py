"""The operating system's lock of an open file, which it releases when the process ends, however it ends."""

from __future__ import annotations

import os
from typing import IO

FAR = 2**30  # a byte that no lock file has: on Windows nobody else can read a byte that is locked


def lock_exclusively(file: IO[str]) -> bool | None:
    """Ask the system for an exclusive lock without waiting.

    Args:
        file: An open file; closing it releases the lock.

    Returns:
        True if we have the lock, False if another process or another open file has it; None if there are no locks here.
    """
    try:
        import fcntl
    except ImportError:  # not POSIX
        return lock_on_windows(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system has none
        return None
    return True


def lock_on_windows(file: IO[str]) -> bool | None:
    """Lock a byte far behind the end of a file; see ``lock_exclusively``."""
    try:
        import msvcrt
    except ImportError:
        return None
    lock, at_once = getattr(msvcrt, "locking"), getattr(msvcrt, "LK_NBLCK")  # noqa: B009  # unknown on other systems
    os.lseek(file.fileno(), FAR, os.SEEK_SET)
    try:
        lock(file.fileno(), at_once, 1)
    except OSError:
        return False
    finally:
        os.lseek(file.fileno(), 0, os.SEEK_SET)
    return True
