"""The environment of every Flower process we start: loopback, and nothing sent or installed unless the user asks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the only switch that keeps Ray on the loopback, on any system
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a warning less
}


def quiet() -> None:
    """Be quiet in this process: to be called before flwr is imported. What the user has set stays."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)


def environment(home: Path, nodes: int) -> dict[str, str]:
    """For processes of our own: with Flower's files in a folder of theirs, and the cores shared among the nodes."""
    threads = str(max(1, (os.cpu_count() or 1) // nodes))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # Flower calls its own tools
    own = {"FLWR_HOME": str(home), "PATH": path, "PYTHONUNBUFFERED": "1"}
    return QUIET | {"OMP_NUM_THREADS": threads} | dict(os.environ) | own
