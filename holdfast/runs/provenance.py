"""Where a run was made: the device, the day, and the versions of this code and of torch."""

from __future__ import annotations

import datetime
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import holdfast

if TYPE_CHECKING:
    import torch

ROOT = Path(__file__).resolve().parents[1]  # of the checkout, where this is one
MADE = ("device", "date", "holdfast", "torch", "commit")


def made_here(device: torch.device) -> dict[str, str]:
    """What a run that ends now says of itself."""
    import torch  # here: the command line reads run folders, and is to start at once

    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "date": datetime.date.today().isoformat(),
        "holdfast": holdfast.__version__,
        "torch": torch.__version__,
        "commit": commit(),
    }


def made_of(record: Mapping[str, Any]) -> dict[str, str]:
    """What a run's record says of it; a run of an older version says less."""
    return {name: record[name] for name in MADE if record.get(name)}


@cache
def commit() -> str:
    """The version of this code: the commit of a git checkout, else what ``HOLDFAST_COMMIT`` says, else empty.

    It is asked for once: the files may change while their old content goes on running.
    """
    return described(ROOT) or os.environ.get("HOLDFAST_COMMIT", "").strip()


def described(root: Path) -> str:
    """What git says of a checkout; nothing of a folder that only lies in someone else's."""
    if not (root / ".git").exists():
        return ""
    name = git(root, "describe", "--always")
    changed = git(root, "--no-optional-locks", "status", "--porcelain", "--untracked-files=no")
    return f"{name}-dirty" if name and changed else name


def git(root: Path, *words: str) -> str:
    """What a git command says; nothing where it fails. A hook's environment may speak of another checkout."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(root), *words]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10, env=plain)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.strip() if said.returncode == 0 else ""
