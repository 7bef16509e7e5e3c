"""Run the campaign: ``python -m campaign --minutes 4 --out docs/reliability.md``; exit code 1 if it finds something."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported, below
sys.path.insert(0, str(ROOT / "tests"))  # for the federation in memory

from campaign import damage, hostile, kills, limits, page, process, writers  # noqa: E402
from campaign.cases import Part  # noqa: E402

# Name, function, share of the time.
PARTS: list[tuple[str, Callable[[Part], None], float]] = [
    ("`run` killed and resumed", kills.kill_runs, 0.25),
    ("`compare` killed and resumed", kills.kill_comparisons, 0.12),
    ("`reproduce` killed and resumed", kills.kill_reproductions, 0.05),
    ("a file of a run damaged", damage.damage_runs, 0.2),
    ("a file of a comparison damaged", damage.damage_comparisons, 0.12),
    ("disk full", limits.fill_disks, 0.08),
    ("folder read-only", limits.close_folders, 0.03),
    ("two writers", writers.write_twice, 0.07),
    ("a hostile node", hostile.lie, 0.08),
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m campaign", description="Try to break Holdfast.")
    parser.add_argument("--minutes", type=float, default=4.0, help="time for all parts together (default: 4)")
    parser.add_argument("--most", type=int, default=10**9, help="the largest number of cases per part")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random choices (default: 0)")
    parser.add_argument("--only", default="", help="only the parts whose name contains this text")
    parser.add_argument("--out", type=Path, help="the page to write, in Markdown")
    options = parser.parse_args()
    process.preload()
    start, commit = time.monotonic(), page.commit(ROOT)
    with tempfile.TemporaryDirectory(prefix="holdfast-campaign-") as folder:
        Path(folder).chmod(0o755)
        parts = [run(n, *part, Path(folder), options) for n, part in enumerate(PARTS) if options.only in part[0]]
    seconds = time.monotonic() - start
    findings = [finding for part in parts for finding in part.findings]
    print(page.table(parts))
    for finding in findings:
        print(f"finding: {finding}")
    if options.out:
        options.out.write_text(page.page(parts, options.seed, seconds, commit), encoding="utf-8")
    return int(bool(findings))


def run(
    number: int,
    name: str,
    action: Callable[[Part], None],
    share: float,
    folder: Path,
    options: argparse.Namespace,
) -> Part:
    """Run one part in a folder of its own, with random numbers of its own, and print a line about it."""
    place = folder / str(number)
    place.mkdir()
    part = Part(name, 60 * options.minutes * share, options.most, place, random.Random(f"{options.seed} {name}"))
    start = time.monotonic()
    action(part)
    print(page.progress(part, time.monotonic() - start), flush=True)
    return part


if __name__ == "__main__":
    sys.exit(main())
