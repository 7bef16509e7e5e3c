"""Three machines, on this one: a server and three nodes of Flower, each a process, that speak over loopback.

    pip install "holdfast[flower]"

``holdfast deploy init`` writes the same federation as an app for real machines.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import holdfast


def main(rounds: int = 5, method: str = "scaffold") -> tuple[holdfast.Result, holdfast.Result]:
    """Train across processes, then in this one, and compare."""
    settings = {"rounds": rounds, "clients": 3, "split": "dirichlet(0.3)", "model": "linear", "epochs": 1}
    flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    with TemporaryDirectory() as folder:
        out = Path(folder) / "deployed"
        command = [sys.executable, "-m", "holdfast", "deploy", "local", method, "--nodes", "3", "--out", str(out)]
        subprocess.run([*command, *flags], check=True)
        deployed = holdfast.load_run(out)
    here = holdfast.run(method, data="digits", engine="loop", **settings)
    print(f"three nodes {deployed.score.accuracy:.4f}, one process {here.score.accuracy:.4f}")
    return deployed, here


if __name__ == "__main__":
    main()
