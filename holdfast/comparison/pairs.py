"""Every pair of recipes: does their sum run, and if not, why? Found by running it, in both engines.

``holdfast combinations`` writes ``docs/combinations.md`` from this; the tests check that the page is what comes out.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict
from functools import cache
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.data.federation import Federation, federate
from holdfast.data.sources import load
from holdfast.method.method import Method
from holdfast.method.recipes import RECIPES
from holdfast.runs.run import run
from holdfast.training.round_record import RoundRecord

# Small enough that some six hundred pairs take a minute or two; three layers, since freeze-last-two leaves one.
SETTINGS: dict[str, Any] = {
    "model": "mlp(width=16, depth=2)",
    "rounds": 2,
    "cohort": 3,
    "steps": 2,
    "batch": 16,
    "precision": "fp64",
    "device": "cpu",
}


@cache
def federation() -> Federation:
    return federate(load("digits"), "dirichlet(0.3)", clients=10, seed=0, public=0.05)


def attempt(first: str, second: str) -> str:
    """Run the sum of two recipes for two rounds in both engines; the reason when it is refused, else nothing."""
    try:
        sum = Method.parse(f"{first}+{second}")
        loop, vector = (run(sum, federation(), engine=engine, **SETTINGS).history for engine in ("loop", "vector"))
    except HoldfastError as error:
        return str(error)
    disagree(f"{first}+{second}", loop, vector)
    return ""


def disagree(name: str, loop: list[RoundRecord], vector: list[RoundRecord]) -> None:
    """A result that is not finite, or that depends on the engine, is a bug: say where."""
    for a, b in zip(loop, vector, strict=True):
        for key, value in asdict(a).items():
            other = asdict(b)[key]
            if key == "seconds":
                continue
            same = math.isclose(value, other, rel_tol=1e-8) if isinstance(value, float) else value == other
            finite = not isinstance(value, float) or math.isfinite(value)
            if not same or not finite:
                raise AssertionError(f"{name}, round {a.round}: {key} is {value} in loop and {other} in vector")


def names() -> list[str]:
    """The recipes, without FedAvg: adding nothing always works."""
    return [name for name in RECIPES if name != "fedavg"]


def pairs() -> list[tuple[str, str]]:
    return list(itertools.combinations(names(), 2))


def page(found: dict[tuple[str, str], str]) -> str:
    """The Markdown page: a row per recipe with what it refuses; everything not listed runs."""
    refused = {pair: why for pair, why in found.items() if why}
    lines = [
        "# Which methods can be summed",
        "",
        "Made by `holdfast combinations`, and checked by the tests: every pair of recipes is summed and run for two",
        "rounds on non-IID digits, in both engines, with finite results and equal histories, or refused with a reason.",
        "",
        f"Of {len(found)} pairs, {len(found) - len(refused)} run and {len(refused)} are refused. `fedavg`, the empty "
        "sum, goes with everything.",
        "",
        "| recipe | is refused with |",
        "|---|---|",
    ]
    for name in names():
        others = sorted({a if b == name else b for a, b in refused if name in (a, b)})
        lines.append(f"| {name} | {', '.join(others) or '-'} |")
    lines += ["", "## The reasons", ""]
    reasons: dict[str, list[str]] = {}
    for (a, b), why in refused.items():
        reasons.setdefault(why, []).append(f"{a}+{b}")
    for why, sums in sorted(reasons.items()):
        lines.append(f"- {why}: {', '.join(f'`{s}`' for s in sums)}")
    return "\n".join(lines) + "\n"
