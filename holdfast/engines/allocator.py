"""Large tensors come and go in every local step: their memory is kept, not handed back to the system each time."""

from __future__ import annotations

import ctypes
import platform
from functools import cache

ARENAS, MAPPED, TRIMMED = -8, -3, -1  # glibc's M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
NEVER = 2**31 - 1


@cache
def keep_freed_memory() -> bool:
    """Tell the allocator, once per process and where it is glibc's; whether that was possible.

    Memory that went back to the system comes again page by page, each page cleared: several milliseconds of a step of
    a large model. One arena, since those of other threads are too small to keep what a step needs.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(name, value) for name, value in ((ARENAS, 1), (MAPPED, NEVER // 2), (TRIMMED, NEVER)))
