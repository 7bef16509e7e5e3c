"""Installs the wheel and the sdist as a user would, each in an empty environment without extras, and uses them.

    python tests/packages/use_packages.py dist
    python tests/packages/use_packages.py dist .venv

Called by ``make test-wheel``. The first environment gets the wheel, then the extra ``flower`` for a deployment; the
second one gets the sdist. If an environment is named, the packages that Holdfast needs are borrowed from it: nothing is
downloaded, the sdist and the deployment are left out, and what remains shows that the wheel holds all its files.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
TINY = ("--clients", "4", "--cohort", "2", "--rounds", "2", "--epochs", "1")


def main(dist: str, lender: str | None = None) -> None:
    """Install and use both packages; or the wheel alone, with what it needs borrowed from another environment."""
    wheel, sdist = (only(Path(dist), pattern) for pattern in ("*.whl", "*.tar.gz"))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        if lender is not None:
            use_wheel(Environment(place / "wheel", Path(lender)), wheel)
            return
        env = Environment(place / "wheel")
        use_wheel(env, wheel)
        env.install(f"{wheel}[flower]")
        env.holdfast("deploy", "local", "fedavg", "--nodes", "2", *TINY, "--out", "deployed")
        use_sdist(Environment(place / "sdist"), sdist)


def use_wheel(env: Environment, wheel: Path) -> None:
    """Run every kind of command from the wheel alone."""
    env.install(str(wheel))
    said = env.holdfast("--version")
    assert re.fullmatch(r"holdfast \d+\.\d+\.\d+ \(commit [0-9a-f]{7,}(-dirty)?\)", said.strip()), said
    env.holdfast("run", "fedavg", *TINY, "--out", "first")
    env.holdfast("compare", "fedavg", "fedbug(0.4)", *TINY, "--seeds", "2", "--out", "study")
    env.holdfast("report", "study")
    assert "holdfast" in (env.place / "study" / "report.html").read_text(encoding="utf-8").lower()
    env.holdfast("reproduce", "fedbug", "--table", "1", "--rows", "1", "--scale", "smoke", "--out", "paper")
    env.holdfast("advise", "--help")
    refused = env.run("holdfast", "run", "fedavg", "--data", "csv('x.csv', label='y')", expected=2)
    assert refused.startswith("holdfast: "), refused


def use_sdist(env: Environment, sdist: Path) -> None:
    """Build and install the sdist, and train with it."""
    env.install(str(sdist))
    assert "(commit " in env.holdfast("--version")
    env.holdfast("run", "scaffold", *TINY, "--out", "first")


class Environment:
    """An empty virtual environment, with a folder to work in that is not the repository's."""

    def __init__(self, folder: Path, lender: Path | None = None) -> None:
        self.bin = folder / ("Scripts" if os.name == "nt" else "bin")
        self.place = folder / "work"
        venv.create(folder, with_pip=True)
        self.place.mkdir()
        self.borrows = lender is not None
        if lender is not None:
            # Python follows no such files in a folder that is named in one: Holdfast itself comes from the wheel alone.
            lent, own = (next(place.resolve().glob("[Ll]ib/**/site-packages")) for place in (lender, folder))
            (own / "borrowed.pth").write_text(f"{lent}\n", encoding="utf-8")

    def install(self, what: str) -> None:
        """Install a package with what it needs."""
        quiet = ("--quiet", "--disable-pip-version-check", "--constraint", str(CONSTRAINTS))
        if self.borrows:
            self.run("python", "-m", "pip", "install", *quiet, "--no-deps", "--force-reinstall", what)
            found = self.run("python", "-c", "import holdfast; print(holdfast.__file__)")
            assert Path(found.strip()).is_relative_to(self.bin.parent.resolve()), found
            return
        if not list(self.bin.parent.glob("**/site-packages/torch")):
            self.run("python", "-m", "pip", "install", *quiet, "torch")
        self.run("python", "-m", "pip", "install", *quiet, what)

    def holdfast(self, *args: str) -> str:
        """Run a command of Holdfast that must end well."""
        return self.run("holdfast", *args)

    def run(self, program: str, *args: str, expected: int = 0) -> str:
        """Run a program of the environment and return what it prints, both streams."""
        begun = time.perf_counter()
        clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "HOLDFAST_COMMIT")}
        command = [str(self.bin / program), *args]
        done = subprocess.run(
            command, cwd=self.place, env=clean, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900
        )
        print(f"{time.perf_counter() - begun:6.1f} s  {program} {' '.join(args)}", flush=True)
        if done.returncode != expected:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}, expected {expected}:\n{done.stdout}")
        return done.stdout


def only(folder: Path, pattern: str) -> Path:
    """Return the only file that matches."""
    found = list(folder.resolve().glob(pattern))
    if len(found) != 1:
        sys.exit(f"{folder} has {len(found)} files {pattern}, expected one: run make dist")
    return found[0]


if __name__ == "__main__":
    main(*sys.argv[1:])
