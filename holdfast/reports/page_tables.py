"""The tables of the page: how the methods compare, the secondary figures, and how far an unfinished comparison is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.comparison.tables import NONE, last_scores, unless_never
from holdfast.reports import charts, formatting

Cell = tuple[str, list[str]]  # what it says, and remarks in small print


@dataclass(frozen=True)
class PageTable:
    """A row per method, as text."""

    head: list[str]
    rows: list[PageRow]


@dataclass(frozen=True)
class PageRow:
    label: str
    hue: int
    remarks: list[str]
    cells: list[Cell]


def progress(study: dict[str, Any]) -> PageTable | None:
    """How far every method is, where the comparison is not finished."""
    if "progress" not in study:
        return None
    rows = []
    for hue, e in enumerate(study["entries"]):
        p = e["progress"]
        counts = [f"{p['done']} of {p['runs']}", f"{p['rounds']} of {p['of']}", formatting.plus_minus(p["final"])]
        rows.append(PageRow(e["label"], hue, remarks(e), [plain(text) for text in counts]))
    return PageTable(["Runs done", "Rounds played", "Final accuracy so far"], rows)


def results(study: dict[str, Any]) -> PageTable:
    """What the methods are compared by."""
    targets = [f"Rounds to\N{NO-BREAK SPACE}{100 * t:g}\N{NO-BREAK SPACE}%" for t in study["targets"]]

    def cells(e: dict[str, Any]) -> list[Cell]:
        return [accuracy(e, "final"), difference(e), *(reached(target["rounds"]) for target in e["targets"])]

    return table(study, ["Final", "Difference", *targets], cells)


def scores(study: dict[str, Any]) -> PageTable:
    """Secondary figures: other ways to score, and what the runs cost. A single method has its final accuracy here."""
    alone = len(study["entries"]) == 1
    kinds = ["final"] * alone + ["best", "last5"]

    def cells(e: dict[str, Any]) -> list[Cell]:
        figures = [formatting.figure(e[name]["mean"]) if e.get(name) else NONE for name in ("kappa", "rho")]
        costs = [formatting.seconds(e["seconds"]["mean"]), formatting.traffic(e["bytes"]["mean"]), *figures]
        return [*(accuracy(e, kind) for kind in kinds), *map(plain, costs)]

    head = ["Final"] * alone + ["Best", f"Last {last_scores(study)}", "Time", "Traffic", "κ", "ρ"]
    return table(study, head, cells)


def table(study: dict[str, Any], head: list[str], cells: Callable[[dict[str, Any]], list[Cell]]) -> PageTable:
    """A row for every method of which all runs are done."""
    rows = [PageRow(e["label"], i, remarks(e), cells(e)) for i, e in enumerate(study["entries"]) if charts.whole(e)]
    return PageTable(head, rows)


def plain(text: str) -> Cell:
    return text, []


def accuracy(e: dict[str, Any], kind: str) -> Cell:
    return plain(formatting.plus_minus(e["accuracy"][kind]))


def difference(e: dict[str, Any]) -> Cell:
    d = e.get("difference")
    told = [e["verdict"]] if e.get("verdict") else []
    return (formatting.points(d["mean"]), interval(d) + told) if d else plain(NONE)


def reached(rounds: list[int | None]) -> Cell:
    """The mean over seeds, as the tables of the terminal have it; what stands in brackets there is small print here."""
    text, _, some = unless_never(rounds, lambda known: formatting.count(charts.mean(known))).partition(" (")
    return text, [some.rstrip(")")] if some else []


def remarks(e: dict[str, Any]) -> list[str]:
    found = [f"diverged with seed {d['seed']}" for d in e.get("diverged") or []]
    return found + (["leaks test data: its accuracy means nothing"] if e.get("leaks_test_data") else [])


def interval(difference: dict[str, Any]) -> list[str]:
    """The confidence interval and the chance, where there are seeds enough."""
    low, high, p = (difference.get(k) for k in ("low", "high", "p"))
    known = [] if low is None or high is None else [f"{formatting.points(low)} to {formatting.points(high)}"]
    return known + ([] if p is None else [formatting.chance(p)])
