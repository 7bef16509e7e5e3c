"""Where a run was made: the device, the day, and the versions of this code and of torch."""

from __future__ import annotations

import datetime
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.version import __version__

if TYPE_CHECKING:
    import torch

ROOT = Path(__file__).resolve().parents[2]  # of the checkout, if this is one
MADE = ("device", "date", "holdfast", "torch", "commit")
DATA = "data_checksum"  # see ``holdfast.data.loading.sample_checksum``


def made_here(device: torch.device, data_checksum: str) -> dict[str, str]:
    """Return where, with what and on which data a run that ends now was made."""
    import torch  # here, so that the command line starts quickly

    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "date": datetime.date.today().isoformat(),
        "holdfast": __version__,
        "torch": torch.__version__,
        "commit": commit(),
        **({DATA: data_checksum} if data_checksum else {}),
    }


def made_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return where and on which data a run was made according to its record; runs of older versions say less."""
    return {name: record[name] for name in (*MADE, DATA) if record.get(name)}


@cache
def commit() -> str:
    """Return the version of this code: the commit of a git checkout, else ``$HOLDFAST_COMMIT``, else nothing.

    It is looked up once: the files may change while their old content keeps running.
    """
    return described(ROOT) or os.environ.get("HOLDFAST_COMMIT", "").strip()


def described(root: Path) -> str:
    """Describe a checkout with git; return nothing for a folder that is merely inside another checkout."""
    if not (root / ".git").exists():
        return ""
    name = git(root, "describe", "--always")
    changed = git(root, "--no-optional-locks", "status", "--porcelain", "--untracked-files=no")
    return f"{name}-dirty" if name and changed else name


def git(root: Path, *words: str) -> str:
    """Run a git command and return its output, or nothing if it fails.

    Variables of git are left out: within a hook they describe another checkout.
    """
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(root), *words]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10, env=plain)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.strip() if said.returncode == 0 else ""
