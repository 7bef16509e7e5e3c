"""``holdfast bench``, and ``python -m holdfast.bench`` where the command line's packages are not installed."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from holdfast.bench import cpu, gpu, scaling, startup
from holdfast.bench.timing import Timing, machine
from holdfast.core.errors import HoldfastError, unknown

SUITES = {
    "cpu": "rounds on the CPU against plain PyTorch",
    "gpu": "local steps on the GPU against plain PyTorch",
    "sums": "what the slowest sum costs on the GPU",
    "runs": "FedBug's and FedMRUR's whole runs on the GPU",
    "check": "results of the GPU against the CPU's",
    "scale": "time and memory by clients, cohort and slice",
    "start": "how long a user waits at the start",
}
ON_A_GPU = ("gpu", "sums", "runs", "check")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="holdfast bench",
        description="Measure this machine, where there is a baseline against it in the same run.",
        epilog="suites: " + "; ".join(f"{name}: {what}" for name, what in SUITES.items()),
    )
    p.add_argument("suites", nargs="*", metavar="SUITE", help="which to run; default: all that this machine can")
    p.add_argument("--peers", action="store_true", help="also the frameworks that are installed (Flower, fluke, pfl)")
    p.add_argument("--only", default="", help="of the suite gpu, only models whose name contains this")
    p.add_argument(
        "--rounds", default="30,30", help="of the suite runs: rounds timed of FedBug's and of FedMRUR's; default: 30,30"
    )
    p.add_argument("--data-dir", type=Path, help="folder of the data sets, for the start on CIFAR-10")
    p.add_argument("--json", type=Path, help="also write the figures to this file")
    return p


def main(args: Sequence[str] | None = None) -> None:
    """Run suites and print their tables."""
    asked = parser().parse_args(args)
    for name in asked.suites:
        if name not in SUITES:
            raise unknown("suite", name, SUITES)
        if name in ON_A_GPU and not torch.cuda.is_available():
            raise HoldfastError(f"the suite {name} needs a CUDA GPU, and PyTorch sees none: leave it out")
    if not re.fullmatch(r"[1-9]\d*,[1-9]\d*", asked.rounds):
        raise HoldfastError(f"--rounds must be two whole numbers such as 30,30, not {asked.rounds}")
    if asked.json is not None and not asked.json.absolute().parent.is_dir():
        raise HoldfastError(f"cannot write {asked.json}: there is no folder {asked.json.parent}; make it first")
    chosen = asked.suites or [n for n in SUITES if n not in ON_A_GPU or torch.cuda.is_available()]
    about = machine("cuda" if any(name in ON_A_GPU for name in chosen) else "cpu")
    print(", ".join(f"{k} {v}" for k, v in about.items()), flush=True)
    rows: list[Timing] = []
    for row in measured(chosen, asked):
        print(row.told(rows[-1] if rows else None), flush=True)
        rows.append(row)
        if asked.json is not None:
            asked.json.write_text(json.dumps({"machine": about, "rows": [asdict(r) for r in rows]}, indent=1) + "\n")


def measured(suites: Sequence[str], asked: argparse.Namespace) -> Iterator[Timing]:
    for name in suites:
        if name == "runs":
            yield from gpu.runs(*map(int, asked.rounds.split(",")))
        elif name == "start":
            yield from startup.rows(asked.data_dir)
        elif name == "gpu":
            yield from gpu.steps(asked.only)
        else:
            yield from {"cpu": cpu.rows, "sums": gpu.sums, "check": gpu.check, "scale": scaling.rows}[name]()
    if asked.peers:
        yield from cpu.others()
