"""How accurate every mean is under every attack: the tables of docs/robust.md.

    python benchmarks/robust_means.py --data digits
    python benchmarks/robust_means.py --tables

Every attack is a comparison of all means; what is finished is kept in ``--out`` and not run again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import holdfast
from holdfast.comparison.labels import slug
from holdfast.comparison.stats import paired

ROOT = Path(__file__).resolve().parents[1]
STORED, PAGE = ROOT / "benchmarks" / "robust_means.json", ROOT / "docs" / "robust.md"
START, END = "<!-- tables: written by python benchmarks/robust_means.py -->", "<!-- end of tables -->"
MEANS = (
    "fedavg", "mean(uniform)", "median", "trimmed(0.3)", "multikrum(3)", "krum(f=3)", "geometric_median",
    "centred_clipping", "norm_bound(2)", "norm_bound(2)+median",
)  # fmt: skip
ATTACKS = (
    "none", "sign_flip(0.2)", "scaled(0.2)", "gaussian(0.2)", "label_flip(0.2)", "little_is_enough(0.2)",
    "inner_product(0.2)", "false_count(0.2)",
)  # fmt: skip
SETTINGS = {"split": "dirichlet(0.3)", "clients": 20, "cohort": 10, "rounds": 30, "epochs": 2, "model": "mlp"}


def main() -> None:
    """Run what is missing, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", default="runs/robust")
    parser.add_argument("--tables", action="store_true", help="only write the tables")
    given = parser.parse_args()
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    for attack in () if given.tables else ATTACKS:
        print(f"== {given.data}, {attack}", flush=True)
        found = holdfast.compare(
            MEANS, given.data, seeds=given.seeds, attack=attack, eval_every=5, light=True,
            out=Path(given.out) / slug(f"{given.data}-{attack}"), **SETTINGS,
        )  # fmt: skip
        stored.setdefault(given.data, {})[attack] = {
            entry["label"]: entry["scores"]["final"]["values"] for entry in found.entries
        }
        STORED.write_text(json.dumps(stored, indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition(START)
    after = rest.partition(END)[2]
    PAGE.write_text(before + START + "\n\n" + "\n".join(map(table, stored.items())) + END + after)


def table(item: tuple[str, dict[str, dict[str, list[float | None]]]]) -> str:
    """Return the table of a data set."""
    data, attacks = item
    lines = [f"**{data}**", "", "| | " + " | ".join(attacks) + " |", "|---|" + "---|" * len(attacks)]
    for label in next(iter(attacks.values())):
        lines.append(f"| `{label}` | " + " | ".join(cell(found[label]) for found in attacks.values()) + " |")
    return "\n".join([*lines, ""])


def cell(values: list[float | None]) -> str:
    """Return the mean of the seeds in percent, and half of its 95% interval."""
    known = [100 * v for v in values if v is not None]
    if len(known) < len(values):
        return f"diverged: {len(values) - len(known)} of {len(values)}"
    found = paired(known, [0.0] * len(known))
    assert found is not None
    assert found.high is not None
    return f"{found.mean:.1f} ± {found.high - found.mean:.1f}"


if __name__ == "__main__":
    main()
