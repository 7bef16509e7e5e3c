"""A measurement in its own process, which prints one line of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from holdfast.core.errors import HoldfastError

# In its own namespaces a command has only the loopback network; whatever it started ends with it, and it with us.
ALONE = ["setpriv", "--pdeathsig", "KILL", "unshare", "-rn", "--pid", "--fork", "--kill-child", "--mount-proc"]
ALONE += ["sh", "-c", 'ip link set lo up && exec "$0" "$@"']
GRACE = 3.0  # seconds between asking a process to end and killing it


@cache
def alone() -> list[str]:
    """Return the prefix that runs a command in its own namespaces; empty where the system forbids that."""
    with contextlib.suppress(OSError):
        if subprocess.run([*ALONE, "true"], capture_output=True).returncode == 0:
            return ALONE
    return []


def answer(command: Sequence[str], env: Mapping[str, str], limit: float | None = None) -> dict[str, Any]:
    """Run a command and return the JSON in the last line that it prints.

    Args:
        command: The command.
        env: Its environment.
        limit: Seconds that it may take; default: any time.

    Returns:
        The JSON; if it has an ``error``, or if there is none, a HoldfastError is raised.
    """
    pipe, group = subprocess.PIPE, None if limit is None else 0  # without a limit it ends with our own group
    process = subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True, process_group=group)
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        raise HoldfastError(f"no answer after {limit:g} s; allow more time or fewer rounds") from None
    finally:
        if group == 0 and process.poll() is None:
            end(process)
    try:
        line = dict(json.loads(out.strip().splitlines()[-1]))
    except (ValueError, TypeError, IndexError):
        last = (err.strip().splitlines() or ["no message"])[-1]
        raise HoldfastError(f"no answer, exit status {process.returncode}: {last}") from None
    if "error" in line:
        raise HoldfastError(line["error"])
    return line


def end(process: subprocess.Popen[str]) -> None:
    """End a process and its group: gently first, so that it can end the processes that it started."""
    os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=GRACE)
        return
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
