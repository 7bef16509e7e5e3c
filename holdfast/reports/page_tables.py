"""The tables of the page: how the methods compare, other scores and cost, and how far an unfinished comparison is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.comparison.study_schema import PairedDifference, Spread, Study, StudyEntry
from holdfast.comparison.tables import NONE, last_scores, unless_never
from holdfast.reports import charts, formatting

Cell = tuple[str, list[str]]  # the text, and remarks in small print


@dataclass(frozen=True)
class PageTable:
    """A table with a row per method.

    Attributes:
        head: The names of the columns after the method.
        rows: The rows.
    """

    head: list[str]
    rows: list[PageRow]


@dataclass(frozen=True)
class PageRow:
    """A row of the page's tables.

    Attributes:
        label: The label of the entry.
        hue: The number of its colour.
        remarks: Small print below the label.
        cells: The cells after the label.
    """

    label: str
    hue: int
    remarks: list[str]
    cells: list[Cell]


def progress(study: Study) -> PageTable | None:
    """Return how far every method is, if the comparison is not finished."""
    if study.progress is None:
        return None
    rows = []
    for hue, e in enumerate(study.entries):
        if e.progress is not None:
            p = e.progress
            texts = [f"{p.done} of {p.runs}", f"{p.rounds} of {p.of}", formatting.plus_minus(p.final)]
            rows.append(PageRow(e.label, hue, remarks(e), [plain(text) for text in texts]))
    return PageTable(["Runs done", "Rounds done", "Final accuracy so far"], rows)


def results(study: Study) -> PageTable:
    """Return what the methods are compared by."""
    targets = [f"Rounds to\N{NO-BREAK SPACE}{100 * t:g}\N{NO-BREAK SPACE}%" for t in study.targets]

    def cells(e: StudyEntry) -> list[Cell]:
        return [accuracy(e.accuracy.final), difference(e), *(reached(target.rounds) for target in e.targets)]

    return table(study, ["Final", "Difference", *targets], cells)


def scores(study: Study) -> PageTable:
    """Return other scores and costs; of a single method also the final accuracy."""
    alone = len(study.entries) == 1

    def cells(e: StudyEntry) -> list[Cell]:
        kinds = [e.accuracy.final] * alone + [e.accuracy.best, e.accuracy.last5]
        figures = [formatting.figure(e.kappa.mean), formatting.figure(e.rho.mean)]
        costs = [formatting.seconds(e.seconds.mean), formatting.traffic(e.bytes.mean), *figures]
        return [*map(accuracy, kinds), *map(plain, costs)]

    head = ["Final"] * alone + ["Best", f"Last {last_scores(study)}", "Time", "Traffic", "κ", "ρ"]
    return table(study, head, cells)


def table(study: Study, head: list[str], cells: Callable[[StudyEntry], list[Cell]]) -> PageTable:
    """Make a row for every method of which all runs are done."""
    rows = [PageRow(e.label, i, remarks(e), cells(e)) for i, e in enumerate(study.entries) if e.complete]
    return PageTable(head, rows)


def plain(text: str) -> Cell:
    return text, []


def accuracy(score: Spread) -> Cell:
    return plain(formatting.plus_minus(score))


def difference(e: StudyEntry) -> Cell:
    if e.difference is None:
        return plain(NONE)
    return formatting.points(e.difference.mean), interval(e.difference) + [e.verdict] * bool(e.verdict)


def reached(rounds: Sequence[int | None]) -> Cell:
    """Return the mean over seeds as in the terminal's tables; what is in brackets there is small print here."""
    text, _, some = unless_never(rounds, lambda known: formatting.count(charts.mean(known))).partition(" (")
    return text, [some.rstrip(")")] if some else []


def remarks(e: StudyEntry) -> list[str]:
    lines = [f"diverged with seed {d.seed}" for d in e.diverged]
    lines += [f"exploded with seed {x.seed} by round {x.round}" for x in e.exploded]
    return lines + (["leaks test data: its accuracy is meaningless"] if e.leaks_test_data else [])


def interval(d: PairedDifference) -> list[str]:
    """Return the confidence interval and the p-value, if there are enough seeds."""
    known = [] if d.low is None or d.high is None else [f"{formatting.points(d.low)} to {formatting.points(d.high)}"]
    return known + ([] if d.p is None else [formatting.p_value(d.p)])
