"""Three methods on the same non-IID federation: twenty clients, most of which see only a few of the ten digits."""

from __future__ import annotations

import time

from rich.console import Console
from rich.table import Table

import holdfast
from holdfast.data.sources import load
from holdfast.runs.run_progress import RunProgress

METHODS = ("fedavg", "scaffold", "fedbug(0.4)+feddyn(0.1)")
ROUNDS = 40


def main() -> None:
    console = Console()
    federation = holdfast.federate(load("digits"), split="dirichlet(0.1)", clients=20, seed=1)
    table = Table("method", "accuracy", "mean of last 5", "80% after", "MB", "s")
    folders = []
    for method in METHODS:
        watch = RunProgress(method)
        begun = time.perf_counter()
        with watch:
            result = holdfast.run(
                method, federation, out=f"runs/demo/{method}", overwrite=True, rounds=ROUNDS, cohort=5, seed=1,
                on_start=watch.start, on_round=watch.round,
            )  # fmt: skip
        s = result.summary
        reached = [r.round for r in result.history if r.test_accuracy is not None and r.test_accuracy >= 0.8]
        table.add_row(
            method,
            f"{s['final']:.3f}",
            f"{s['last5']:.3f}",
            f"{reached[0]} rounds" if reached else "never",
            f"{(s['upload_bytes'] + s['download_bytes']) / 1e6:.0f}",
            f"{time.perf_counter() - begun:.1f}",
        )
        folders.append(s["out"])
    console.print(table)
    console.print("Run folders, each with config.toml, history.jsonl, summary.json and a checkpoint:", highlight=False)
    for folder in folders:
        console.print(f"  {folder}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
