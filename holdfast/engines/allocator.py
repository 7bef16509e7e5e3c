"""Keep the memory of freed tensors: large ones come and go in every local step."""

from __future__ import annotations

import ctypes
import platform
from functools import cache

ARENAS, MAPPED, TRIMMED = -8, -3, -1  # glibc's M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
NEVER = 2**31 - 1


@cache
def keep_freed_memory() -> bool:
    """Tell glibc's allocator to keep freed memory, once per process; return whether that was possible.

    Memory that was returned to the system comes back page by page, each page cleared, which costs several milliseconds
    per step of a large model. A single arena is used, since those of other threads are too small for a step.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(name, value) for name, value in ((ARENAS, 1), (MAPPED, NEVER // 2), (TRIMMED, NEVER)))
