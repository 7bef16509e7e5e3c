"""How much memory this machine has, on any system."""

from __future__ import annotations

import ctypes
import os

ASSUMED = 8 * 2.0**30  # where the system does not say


def host_memory() -> float:
    """Return the bytes of this machine's memory."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not POSIX
        return memory_on_windows() or ASSUMED


class MemoryStatus(ctypes.Structure):
    """What ``GlobalMemoryStatusEx`` of Windows fills in; ``total`` is the physical memory."""

    _fields_ = (
        ("length", ctypes.c_uint32), ("load", ctypes.c_uint32), ("total", ctypes.c_uint64),
        ("available", ctypes.c_uint64), ("others", ctypes.c_uint64 * 5),
    )  # fmt: skip


def memory_on_windows() -> float:
    """Return the bytes of this machine's memory as Windows reports them; 0 elsewhere."""
    windows = getattr(ctypes, "windll", None)
    if windows is None:
        return 0.0
    status = MemoryStatus(length=ctypes.sizeof(MemoryStatus))
    found = windows.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
    return float(status.total) if found else 0.0
