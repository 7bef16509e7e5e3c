"""Errors of the operating system in one line: a full disk, a read-only folder, a name that is too long."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast.core.errors import HoldfastError


def in_one_line(error: OSError) -> str:
    """Describe an error of the operating system.

    >>> in_one_line(OSError(28, "No space left on device", "runs/a/history.jsonl"))
    'cannot use runs/a/history.jsonl: no space left on device'
    """
    reason = error.strerror or str(error) or type(error).__name__
    where = str(error.filename) if error.filename is not None else "the output"
    if len(where) > 100:
        where = where[:97] + "..."
    return f"cannot use {where}: {reason[0].lower()}{reason[1:]}"


def discard_output() -> None:
    """Keep Python from failing once more when it flushes an output that cannot be written."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def kept_on_os_errors(resume: str) -> Iterator[None]:
    """Turn errors of the operating system within this block into one line that says how to resume.

    Args:
        resume: The command that continues what was started.

    Raises:
        HoldfastError: What went wrong, and what to do.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise HoldfastError(f"{in_one_line(error)}; what was recorded is kept: fix that, then {resume}") from error
