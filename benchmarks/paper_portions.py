"""Run the papers' tables in portions: the plan of ``results/plan.toml``, on this machine or on one that is lent.

    python benchmarks/paper_portions.py list
    python benchmarks/paper_portions.py run fedagg-mnist-linear --seconds 1500 --data-dir data
    python benchmarks/paper_portions.py pack portion.tgz       # there: finished runs alone, without checkpoints
    python benchmarks/paper_portions.py unpack portion.tgz     # here: beside what is there already
    python benchmarks/paper_portions.py collect                # here: results/*.json and docs/results.md

It needs Python with torch, numpy and safetensors, and nothing from a network. Where the code is not a git checkout, set
HOLDFAST_COMMIT. A command whose time is up is stopped after its current rounds, and goes on when it is run again.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from holdfast.method.config_text import settings_from_pairs  # noqa: E402
from holdfast.reproduce.command import main as main_of_reproduce  # noqa: E402
from holdfast.reproduce.command import parser  # noqa: E402
from holdfast.reproduce.paper_file import load_paper  # noqa: E402
from holdfast.reproduce.request import Request, ResolvedRequest, resolve  # noqa: E402
from holdfast.reproduce.results import main as write_page  # noqa: E402
from holdfast.reproduce.results import stored  # noqa: E402

START, END = "<!-- plan: written by python benchmarks/paper_portions.py collect -->", "<!-- end of plan -->"
PLAN, RESULTS = ROOT / "results" / "plan.toml", ROOT / "results"
GRACE = 60  # seconds that a stopped command gets to end its rounds
LEAST = 20  # seconds that are worth starting a command for
TABLES = "reproduce.json"
LEFT_OUT = ("checkpoint", ".lock")


def plan() -> list[dict[str, Any]]:
    """Return the portions in their order."""
    portions: list[dict[str, Any]] = tomllib.loads(PLAN.read_text(encoding="utf-8"))["portion"]
    return portions


def commands(portion: dict[str, Any], reading: str = "") -> Iterator[list[str]]:
    """Yield the arguments of ``holdfast reproduce`` for each command of a portion.

    Args:
        portion: The portion.
        reading: The reading to use in place of the one that the plan expects.

    Yields:
        The paper and its options, at full scale.
    """
    for text in portion["commands"]:
        words = shlex.split(text.replace("{reading}", shlex.quote(reading or portion.get("reading", "plain"))))
        yield [*words, "--scale", "full"]


@cache
def resolved(*arguments: str) -> ResolvedRequest:
    """Return the cells that a command of the plan asks for."""
    given = parser().parse_args(list(arguments))
    wanted = Request(
        given.table, given.rows, given.columns, given.scale, given.seeds, settings_from_pairs(given.set),
        given.reading, given.readings, given.explain,
    )  # fmt: skip
    return resolve(wanted, load_paper(given.paper))


def progress(portion: dict[str, Any], done: set[tuple[str, str, int]]) -> str:
    """Return how many runs of a portion are stored; runs that several cells share count once.

    Args:
        portion: The portion.
        done: The stored runs: paper, folder and seed.

    Returns:
        Both numbers.
    """
    wanted = set()
    for arguments in commands(portion):
        found = resolved(*arguments)
        wanted |= {(arguments[0], cell.folder, seed) for cell in found.cells for seed in found.seeds}
    return f"{len(wanted & done)} of {len(wanted)}"


def table() -> str:
    """Return the plan as a table in Markdown, with what is stored in results/."""
    done = {(t.paper, runs.folder, seed) for t in stored(RESULTS) for runs in t.runs for seed in runs.seeds}
    lines = ["| portion | device | data | what it decides | runs |", "|---|---|---|---|---|"]
    lines += [
        f"| {p['name']} | {p['device']} | {', '.join(p['data'])} | {p['decides']} | {progress(p, done)} |"
        for p in plan()
    ]
    return "\n".join(lines) + "\n"


def with_plan(readme: str) -> str:
    """Return the README of results/ with the plan as it is now."""
    before, _, rest = readme.partition(START)
    return before + START + "\n\n" + table() + "\n" + END + rest.partition(END)[2]


def reproduce(arguments: list[str], out: Path, seconds: float) -> int:
    """Carry out a command of the plan.

    Args:
        arguments: The paper and its options.
        out: The folder of all papers.
        seconds: The time after which it is stopped.

    Returns:
        Its exit code: 130 if it was stopped.
    """
    code = [sys.executable, "-m", "holdfast.reproduce", *arguments, "--out", str(out / arguments[0])]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(code, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)})
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    except KeyboardInterrupt:  # the command got it as well
        pass
    try:
        return process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def run(given: argparse.Namespace) -> int:
    """Run portions until they are done or the time is up."""
    end = time.monotonic() + given.seconds
    known = {p["name"]: p for p in plan()}
    for name in given.names:
        if name not in known:
            sys.exit(f"no portion {name!r}; known: {', '.join(known)}")
    more = ["--light", "--quiet", "--jobs", str(given.jobs), *option("--device", given.device)]
    more += option("--data-dir", given.data_dir)
    worst = 0
    for name in given.names:
        for arguments in commands(known[name], given.reading):
            left = end - time.monotonic()
            if left < LEAST:
                print(f"no time left for: {shlex.join(arguments)}", flush=True)
                worst = worst or 130
                continue
            begun = time.monotonic()
            status = reproduce([*arguments, *more], given.out, left)
            print(f"exit code {status} after {time.monotonic() - begun:.0f} s: {shlex.join(arguments)}", flush=True)
            worst = worst or status
    return worst


def option(name: str, value: str) -> list[str]:
    """Return an option of the command line, or none if it has no value."""
    return [name, value] if value else []


def pack(given: argparse.Namespace) -> int:
    """Write what is finished into a file that can travel: run folders without checkpoints, and the tables."""
    done = {path.parent for name in ("summary.json", "diverged.txt") for path in given.out.glob(f"*/*/seed-*/{name}")}
    with tarfile.open(given.file, "w:gz") as archive:
        for path in [*sorted(done), *sorted(given.out.glob(f"*/{TABLES}"))]:
            archive.add(path, path.relative_to(given.out), filter=without_checkpoints)
    print(f"{len(done)} finished runs in {given.file}")
    return 0


def without_checkpoints(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave checkpoints and locks out."""
    return None if Path(member.name).name in LEFT_OUT else member


def unpack(given: argparse.Namespace) -> int:
    """Put what was packed elsewhere beside what is here."""
    given.out.mkdir(parents=True, exist_ok=True)
    with tarfile.open(given.file) as archive:
        archive.extractall(given.out, filter="data")
    return 0


def collect(given: argparse.Namespace) -> int:
    """Make the tables of all that was run, and the page of results."""
    for arguments in whole_tables(given.reading):
        out = given.out / arguments[0]
        if (out / TABLES).exists():
            more = ["--collect", "--quiet", "--out", str(out), *option("--data-dir", given.data_dir)]
            main_of_reproduce([*arguments, *more])
    for file in sorted(given.out.glob(f"*/{TABLES}")):
        shutil.copy(file, RESULTS / f"{file.parent.name}.json")
    os.chdir(ROOT)
    sys.argv = sys.argv[:1]
    write_page()
    readme = RESULTS / "README.md"
    readme.write_text(with_plan(readme.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def whole_tables(reading: str) -> list[list[str]]:
    """Return the commands of the plan without their rows and columns, each once: tables are collected whole.

    Args:
        reading: The reading to use in place of the one that the plan expects.

    Returns:
        The arguments of each.
    """
    found: dict[tuple[str, ...], None] = {}
    for portion in plan():
        for words in commands(portion, reading):
            narrow = {
                i + step
                for i, word in enumerate(words)
                if word in ("--rows", "--columns", "--seeds")
                for step in (0, 1)
            }
            found[tuple(word for i, word in enumerate(words) if i not in narrow)] = None
    return [list(words) for words in found]


def main() -> int:
    """Carry out the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--out", type=Path, default=Path("runs/papers"), help="folder of the runs, one per paper below it"
    )
    steps = made.add_subparsers(dest="step", required=True)
    steps.add_parser("list", help="the plan")
    running = steps.add_parser("run", help="run portions")
    running.add_argument("names", nargs="+", metavar="PORTION")
    running.add_argument("--seconds", type=float, default=1e9, help="stop after this time; default: when all is done")
    running.add_argument("--jobs", type=int, default=1, help="runs at a time")
    running.add_argument("--device", default="", help="cpu, cuda or cuda:N")
    collecting = steps.add_parser("collect", help="make the tables of all runs")
    for each in (running, collecting):
        each.add_argument("--data-dir", default="", help="folder of the data sets")
        each.add_argument("--reading", default="", help="in place of the reading that the plan expects")
    for name in ("pack", "unpack"):
        steps.add_parser(name).add_argument("file", type=Path)
    given = made.parse_args()
    given.out = given.out.resolve()
    if given.step == "list":
        print(table(), end="")
        return 0
    return {"run": run, "pack": pack, "unpack": unpack, "collect": collect}[given.step](given)


if __name__ == "__main__":
    sys.exit(main())
