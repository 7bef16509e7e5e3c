"""Every pair of methods: whether their sum runs, and if not, why. Each pair is run on both engines to find out.

``holdfast combinations`` writes ``docs/combinations.md`` from this, and the tests compare the page with new runs.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.data.federation import Federation, federate
from holdfast.data.sources import load
from holdfast.method.catalogue import methods
from holdfast.method.composition import composition
from holdfast.method.method import Method
from holdfast.runs.run import run
from holdfast.training.round_record import RoundRecord

READ = {"mean": "mean", "total": "sum", "one by one": "one by one"}
# Small enough for all pairs to take a minute or two; three layers, because freeze-last-two must leave one to train.
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
    """Return the federation on which all pairs are run."""
    return federate(load("digits"), "dirichlet(0.3)", clients=10, seed=0, public=0.05)


def attempt(first: str, second: str) -> str:
    """Run the sum of two methods for two rounds on both engines; return why it is refused, or an empty text."""
    try:
        sum = Method.parse(f"{first}+{second}")
        loop, vector = (run(sum, federation(), engine=engine, **SETTINGS).history for engine in ("loop", "vector"))
    except HoldfastError as error:
        return str(error)
    check_agreement(f"{first}+{second}", loop, vector)
    return ""


def check_agreement(name: str, loop: list[RoundRecord], vector: list[RoundRecord]) -> None:
    """Raise an AssertionError if a result is not finite or depends on the engine.

    Args:
        name: The sum, for the message.
        loop: The history of the loop engine.
        vector: The history of the vector engine.
    """
    for a, b in zip(loop, vector, strict=True):
        for key, value in a.flat().items():
            other = b.flat()[key]
            if key == "seconds":
                continue
            same = math.isclose(value, other, rel_tol=1e-8) if isinstance(value, float) else value == other
            finite = not isinstance(value, float) or math.isfinite(value)
            if not same or not finite:
                raise AssertionError(f"{name}, round {a.round}: {key} is {value} in loop and {other} in vector")


def names() -> list[str]:
    """List the methods of the papers and the baselines, without FedAvg: adding nothing always works."""
    return [entry.name for entry in methods() if entry.group in ("paper", "baseline") and entry.sum]


def pairs() -> list[tuple[str, str]]:
    """List every pair of methods."""
    return list(itertools.combinations(names(), 2))


def page(outcomes: dict[tuple[str, str], str]) -> str:
    """Return the Markdown page: a row per method with what it cannot be summed with; all other pairs run."""
    refused = {pair: why for pair, why in outcomes.items() if why}
    lines = [
        "# Which methods can be summed",
        "",
        "Written by `holdfast combinations` and checked by the tests: every pair of methods is summed and run for two",
        "rounds on non-IID digits. It either runs on both engines, with finite results and equal histories, or is",
        "refused with a reason.",
        "",
        f"Of {len(outcomes)} pairs, {len(outcomes) - len(refused)} run and {len(refused)} are refused. `fedavg`, the "
        "empty sum, combines with everything.",
        "",
        "| method | cannot be summed with |",
        "|---|---|",
    ]
    for name in names():
        others = sorted({a if b == name else b for a, b in refused if name in (a, b)})
        lines.append(f"| {name} | {', '.join(others) or '-'} |")
    lines += ["", "## Reasons", ""]
    reasons: dict[str, list[str]] = {}
    for (a, b), why in refused.items():
        reasons.setdefault(why, []).append(f"{a}+{b}")
    for why, sums in sorted(reasons.items()):
        lines.append(f"- {why}: {', '.join(f'`{s}`' for s in sums)}")
    return "\n".join(lines) + "\n"


def trust_table() -> str:
    """Return the Markdown section on what every method sends, shows and keeps, and what follows for pairs."""
    lines = [
        "## What is sent, shown and kept",
        "",
        "From what parts declare; the tests compare it with what travels when the methods and all pairs are run.",
        "`mean` and `sum` say what the server reads of what the cohort sends; `one by one` is of each client. A pair",
        "sends and keeps what both of its methods do.",
        "",
        "| method | every client sends | and keeps between rounds | secure aggregation | dp |",
        "|---|---|---|---|---|",
    ]
    for name in ["fedavg", *names()]:
        found = composition(Method.parse(name))
        sends = ", ".join(f"{u.name} ({READ[u.enters]})" for u in found.uploads)
        takes = ["no" if why else "yes" for why in (found.unsummed, found.uncounted)]
        lines.append(f"| {name} | {sends} | {'; '.join(found.kept.values()) or '-'} | {takes[0]} | {takes[1]} |")
    exceptions = [f"{a}+{b}: {why}" for (a, b), why in unlike_their_methods().items()]
    lines += ["", "Secure aggregation and `dp` take a pair that runs if they take both of its methods"]
    lines[-1] += ", except:" if exceptions else "."
    lines += ["", *(f"- {text}" for text in exceptions)] if exceptions else []
    return "\n".join(lines) + "\n"


def unlike_their_methods() -> dict[tuple[str, str], str]:
    """Return the pairs of which secure aggregation or dp takes one, but not the other of pair and methods, and why."""
    found = {}
    alone = {name: composition(Method.parse(name)) for name in names()}
    for a, b in pairs():
        try:
            both = composition(Method.parse(f"{a}+{b}"))
        except HoldfastError:
            continue
        for protection, field in (("secure aggregation", "unsummed"), ("dp", "uncounted")):
            expected = any(getattr(alone[name], field) for name in (a, b))
            if bool(getattr(both, field)) != expected:
                found[a, b] = f"{protection}: {getattr(both, field) or 'takes it'}"
    return found
