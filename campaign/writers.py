"""Two commands on one folder: one works as if it were alone, the other is refused in one line."""

from __future__ import annotations

import time
from pathlib import Path

from campaign.cases import SMALL, Part, check, undisturbed
from campaign.process import Child, start

RUN = ("run", "scaffold", *SMALL, "--rounds", "30")
COMPARISON = ("compare", "fedavg", "scaffold", *SMALL, "--rounds", "8", "--seeds", "1")
PAIRS = {
    "run and run --resume": (RUN, ("run", "--resume", "--quiet")),
    "run and run --overwrite": (RUN, (*RUN, "--overwrite")),
    "run and the same run": (RUN, RUN),
    "compare and the same compare": (COMPARISON, COMPARISON),
    "compare and compare --overwrite": (COMPARISON, (*COMPARISON, "--overwrite")),
}


def write_twice(part: Part) -> None:
    for place in part.rounds():
        name = part.random.choice(list(PAIRS))
        first, second = PAIRS[name]
        whole, _ = undisturbed(part.folder / f"whole-{first[0]}", *first)
        if part.random.random() < 0.3 and first == second:
            together(part, name, place, whole)
            continue
        child = start(*first, "--out", place)
        wait_for_a_round(child, place)
        time.sleep(part.random.uniform(0.0, 0.1))
        other = start(*second, "--out", place).wait()
        if not child.running():
            part.count("the first had ended")
        elif not other.refused:
            part.find(name, f"the second was not refused: {other}")
        check(part, f"{name}: the first", child.wait(), place, whole)


def together(part: Part, name: str, place: Path, whole: Path) -> None:
    """Start the same command twice at the same moment."""
    args = PAIRS[name][0]
    ends = [child.wait() for child in [start(*args, "--out", place), start(*args, "--out", place)]]
    part.count("started together")
    for loser in sorted(ends, key=lambda end: end.code)[1:]:
        if not loser.refused:
            part.find(f"{name}, started together", f"not refused: {loser}")
    check(part, f"{name}, started together", min(ends, key=lambda end: end.code), place, whole)


def wait_for_a_round(child: Child, place: Path) -> None:
    while child.running() and not any(path.stat().st_size for path in place.rglob("history.jsonl")):
        time.sleep(0.002)
