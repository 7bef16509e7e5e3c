"""Makes the past races that the library ships with: races of the whole field on one data set under a grid of splits.

    python benchmarks/advise_experience.py --data digits --model mlp --rounds 20 --budget "3000 rounds"

Every race is kept in ``--out`` and goes on where it was stopped; races of other data sets in the file stay.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import holdfast
from holdfast.advice import experience
from holdfast.comparison.labels import slug
from holdfast.core.typed_json import to_json

GRID = (
    "iid", "dirichlet(1)", "dirichlet(0.3)", "dirichlet(0.1)", "shards(2)", "quantity(0.5)",
    "dirichlet(0.5)+noise(0.5)",
)  # fmt: skip


def main() -> None:
    """Run the races that are missing, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("data", "digits"), ("model", "mlp"), ("budget", "3000 rounds"), ("out", "runs/experience")):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--clients", type=int, default=20)
    given = parser.parse_args()
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    os.environ[experience.VARIABLE] = str(out / "found.json")
    for split in GRID:
        print(f"== {given.data}, {split}", flush=True)
        advice = holdfast.advise(
            given.data, given.model, split=split, clients=given.clients, rounds=given.rounds, budget=given.budget,
            out=out / slug(f"{given.data}-{split}"),
        )  # fmt: skip
        print(advice, flush=True)
    shipped = Path(experience.__file__).with_name(experience.SHIPPED)
    others = [race for race in experience.races_of(json.loads(shipped.read_text())) if race.data != given.data]
    races = [*others, *experience.own_races()]
    shipped.write_text(json.dumps({"format": experience.FORMAT, "races": to_json(races)}, indent=1) + "\n")
    print(f"wrote {len(races)} races to {shipped}")


if __name__ == "__main__":
    main()
