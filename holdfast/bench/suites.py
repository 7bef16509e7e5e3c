"""``holdfast bench``, also ``python -m holdfast.bench``: it needs nothing but torch and numpy."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch

from holdfast.bench import (
    checkpoints,
    cpu,
    disk,
    evaluation_share,
    first_round,
    gpu,
    scaling,
    skewed,
    startup,
    table_cells,
)
from holdfast.bench.timing import Timing, machine
from holdfast.core.errors import HoldfastError, unknown
from holdfast.core.plain_parser import PlainParser

PROGRAM = "holdfast bench"

SUITES = {
    "cpu": "rounds on the CPU against plain PyTorch",
    "gpu": "local steps on the GPU against plain PyTorch",
    "skewed": "rounds of unequal clients on the GPU",
    "seeds": "seeds that share steps on the GPU",
    "evaluation": "what it costs to evaluate every round on the GPU",
    "checkpoints": "what a checkpoint after every round costs on the GPU",
    "first": "the first round with an empty and a warm cache, on the GPU if there is one",
    "cells": "cells of FedBug's and FedNLR's tables with three seeds, on the GPU",
    "sums": "what the slowest sum costs on the GPU",
    "runs": "FedBug's and FedMRUR's whole runs on the GPU",
    "check": "results of the GPU against those of the CPU",
    "scale": "time and memory by clients, cohort and slice",
    "start": "how long a user waits for the first step",
    "disk": "what it costs that files survive a power cut",
}
ON_A_GPU = ("gpu", "skewed", "seeds", "evaluation", "checkpoints", "cells", "sums", "runs", "check")


def parser(program: str = PROGRAM) -> PlainParser:
    """Return the parser of the command line, for the command called ``program``."""
    p = PlainParser(
        program,
        "[SUITE]...",
        description="Measure this machine, against a baseline in the same run where there is one.",
        epilog="Suites: " + "; ".join(f"{name}: {what}" for name, what in SUITES.items()) + ".",
    )
    p.add_argument("suites", nargs="*", metavar="SUITE", help="what to run; default: all that this machine can run")
    p.add_argument("--peers", action="store_true", help="also the frameworks that are installed (Flower, fluke, pfl)")
    p.add_argument("--only", default="", metavar="NAME", help="only networks, or papers, whose name has this in it")
    p.add_argument(
        "--rounds",
        default="30,30",
        metavar="N,N",
        help="in the suite runs, timed rounds of FedBug's and of FedMRUR's run; default: 30,30",
    )
    p.add_argument("--data-dir", type=Path, metavar="DIR", help="folder of the data sets, for the start on CIFAR-10")
    p.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    return p


def main(args: Sequence[str], program: str = PROGRAM) -> int:
    """Run suites and print their tables; the command is called ``program``."""
    given = parser(program).parse_args(list(args))
    check(given)
    chosen = given.suites or [n for n in SUITES if n not in ON_A_GPU or torch.cuda.is_available()]
    about = machine("cuda" if any(name in ON_A_GPU for name in chosen) else "cpu")
    print(", ".join(f"{k} {v}" for k, v in about.items()), flush=True)
    rows: list[Timing] = []
    for row in measured(chosen, given):
        print(row.text(rows[-1] if rows else None), flush=True)
        rows.append(row)
        if given.json is not None:
            given.json.write_text(json.dumps({"machine": about, "rows": [asdict(r) for r in rows]}, indent=1) + "\n")
    return 0


def check(given: argparse.Namespace) -> None:
    """Refuse arguments that cannot be carried out."""
    for name in given.suites:
        if name not in SUITES:
            raise unknown("suite", name, SUITES)
        if name in ON_A_GPU and not torch.cuda.is_available():
            raise HoldfastError(f"the suite {name} needs a CUDA GPU, but PyTorch finds none: leave the suite out")
    if not re.fullmatch(r"[1-9]\d*,[1-9]\d*", given.rounds):
        raise HoldfastError(f"--rounds must be two whole numbers such as 30,30, not {given.rounds}")
    if given.json is not None and not given.json.absolute().parent.is_dir():
        raise HoldfastError(f"cannot write {given.json}: there is no folder {given.json.parent}; create it first")


def measured(suites: Sequence[str], given: argparse.Namespace) -> Iterator[Timing]:
    """Run suites, one measurement after the other."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    suite: dict[str, Callable[[], Iterator[Timing]]] = {
        "cpu": cpu.rows,
        "gpu": partial(gpu.steps, given.only),
        "skewed": partial(skewed.rounds, given.only),
        "seeds": partial(skewed.seeds, given.only),
        "evaluation": partial(evaluation_share.rows, given.only),
        "checkpoints": checkpoints.rows_on_gpu,
        "first": partial(first_round.rows, given.only, device),
        "cells": partial(table_cells.rows, given.only),
        "sums": gpu.sums,
        "runs": partial(gpu.runs, *map(int, given.rounds.split(","))),
        "check": gpu.check,
        "scale": scaling.rows,
        "start": partial(startup.rows, given.data_dir),
        "disk": disk.rows,
    }
    for name in suites:
        yield from suite[name]()
    if given.peers:
        yield from cpu.others()
