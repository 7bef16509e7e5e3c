"""Which commit of the code this is: of a git checkout, or the one that a package was built from."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

from holdfast.core.version import __version__

ROOT = Path(__file__).resolve().parents[2]  # of the checkout, if this is one
BUILT_FROM = Path(__file__).with_name("commit.txt")  # written when a package is built


@cache
def commit() -> str:
    """Return the commit of a git checkout, else that of the package, else ``$HOLDFAST_COMMIT``, else nothing.

    It is looked up once: the files may change while their old content keeps running.
    """
    return described(ROOT) or built_from() or os.environ.get("HOLDFAST_COMMIT", "").strip()


def version_line() -> str:
    """Return the version with its commit, as ``holdfast --version`` prints it."""
    known = commit()
    return f"holdfast {__version__}" + (f" (commit {known})" if known else "")


def built_from() -> str:
    """Return the commit that the installed package was built from, or nothing."""
    return BUILT_FROM.read_text(encoding="utf-8").strip() if BUILT_FROM.exists() else ""


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
