"""What a round costs as clients, cohort and model grow: the tables of docs/scale.md.

    python benchmarks/scale_costs.py
    python benchmarks/scale_costs.py --tables

Every row is a process of its own with one thread. Its cost is processor time, which other work on the machine changes
little; clients are made on demand, and making them is part of it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
STORED, PAGE = ROOT / "benchmarks" / "studies" / "scale_costs.json", ROOT / "docs" / "scale.md"
START, END = "<!-- tables: written by python benchmarks/scale_costs.py -->", "<!-- end of tables -->"
SAMPLES, NUMBERS, CLASSES = 20, 100, 10
USUAL = {"method": "fedavg", "clients": 100_000, "cohort": 100, "width": 50}
SWEEPS: dict[str, list[dict[str, Any]]] = {
    "clients": [
        {"method": method, "clients": clients}
        for method in ("fedavg", "scaffold")
        for clients in (1_000, 100_000, 10_000_000)
    ],
    "cohort": [{"cohort": cohort} for cohort in (10, 100, 1_000)],
    "model": [{"width": width, "cohort": 20} for width in (50, 200, 800, 1_600)],
}
ROUNDS = 5  # of which the first is left out


def main() -> None:
    """Measure every row, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="only write the tables")
    parser.add_argument("--row", help="measure one row in this process, and print it")
    given = parser.parse_args()
    if given.row:
        print(json.dumps(measured(**json.loads(given.row))))
        return
    if not given.tables:
        rows = {sweep: [row(USUAL | changes) for changes in found] for sweep, found in SWEEPS.items()}
        STORED.write_text(json.dumps(rows, indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition(START)
    shown = tables(json.loads(STORED.read_text()))
    PAGE.write_text(before + START + "\n\n" + shown + "\n\n" + END + rest.partition(END)[2])


def row(settings: dict[str, Any]) -> dict[str, Any]:
    """Measure a row in a process of its own."""
    command = [sys.executable, __file__, "--row", json.dumps(settings)]
    said = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(said.stdout)
    print(found, flush=True)
    return found


def make(client: int) -> tuple[np.ndarray, np.ndarray]:
    """Make the samples of a client."""
    draw = np.random.default_rng(client)
    labels = draw.integers(0, CLASSES, size=SAMPLES)
    return draw.normal(size=(SAMPLES, NUMBERS)) + labels[:, None], labels


def measured(method: str, clients: int, cohort: int, width: int) -> dict[str, Any]:
    """Return what a round costs."""
    import torch

    import holdfast

    torch.set_num_threads(1)
    data = holdfast.from_clients(make, test=make(2**32), clients=clients)
    clock = [time.process_time()]
    found = holdfast.run(
        method, holdfast.federate(data), f"mlp(width={width})", states="disk", cohort=cohort, rounds=ROUNDS, steps=5,
        batch=SAMPLES, eval_every=ROUNDS, on_round=lambda record: clock.append(time.process_time()),
    )  # fmt: skip
    spent = [after - before for before, after in pairwise(clock)][1:]
    return {
        "method": method, "clients": clients, "cohort": cohort, "width": width, "seconds": statistics.median(spent),
        "bytes": statistics.fmean(record.upload_bytes + record.download_bytes for record in found.history),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "parameters": sum(p.numel() for p in found.model.parameters()),
    }  # fmt: skip


def tables(stored: dict[str, list[dict[str, Any]]]) -> str:
    """Return the tables of all sweeps."""
    return "\n\n".join(table(sweep, rows) for sweep, rows in stored.items())


def table(sweep: str, rows: list[dict[str, Any]]) -> str:
    """Return the table of a sweep."""
    lines = [
        f"| {sweep} | method | parameters | processor time of a round | traffic of a round | peak memory |",
        "|---|---|---|---|---|---|",
    ]
    for one in rows:
        many = f"{one['width']} units wide" if sweep == "model" else f"{one[sweep]:,}"
        cost = f"{1000 * one['seconds']:.0f} ms | {one['bytes'] / 1e6:.3g} MB | {one['memory'] / 1e6:.0f} MB"
        lines.append(f"| {many} | {one['method']} | {one['parameters']:,} | {cost} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
