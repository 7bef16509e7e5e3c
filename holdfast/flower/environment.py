"""Environment variables for Flower and Ray: loopback only, and nothing sent or installed unless the user asks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

DEFAULTS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the only switch that keeps Ray on the loopback on every system
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # avoids a warning
}


def set_environment() -> None:
    """Set the defaults in this process, before flwr is imported. Variables that the user has set stay as they are."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)


def child_environment(home: Path, nodes: int) -> dict[str, str]:
    """Return the environment of the processes that we start.

    Flower keeps its files in the folder ``home``, and the cores are shared among the nodes. What handles a message
    starts sooner than by default, up to a second later.
    """
    ours = {
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // nodes)),
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # Flower calls its own tools
    forced = {"FLWR_HOME": str(home), "PATH": path, "PYTHONUNBUFFERED": "1"}
    return DEFAULTS | ours | dict(os.environ) | forced
