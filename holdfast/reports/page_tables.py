"""The tables of the page: how the methods compare, other scores and cost, and how far an unfinished comparison is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.comparison.score_text import NONE
from holdfast.comparison.study_schema import PairedDifference, Study, StudyEntry
from holdfast.comparison.tables import chosen, has_clock, has_ratios, last_scores, unless_never
from holdfast.reports import charts, formatting
from holdfast.reports.formatting import score_text

Cell = tuple[str, list[str]]  # the text, and remarks in small print


@dataclass(frozen=True)
class PageTable:
    """A table with a row per method, or per client.

    Attributes:
        head: The names of the columns after the first.
        rows: The rows.
        of: What a row is.
    """

    head: list[str]
    rows: list[PageRow]
    of: str = "Method"


@dataclass(frozen=True)
class PageRow:
    """A row of the page's tables.

    Attributes:
        label: The label of the entry.
        hue: The number of its colour; None for a row that is no entry.
        remarks: Small print below the label.
        cells: The cells after the label.
    """

    label: str
    hue: int | None
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
            texts = [f"{p.done} of {p.runs}", f"{p.rounds} of {p.of}", score_text(study).spread(p.final)]
            rows.append(PageRow(e.label, hue, remarks(study, e), [plain(text) for text in texts]))
    return PageTable(["Runs done", "Rounds done", f"Final {study.goes_by.spoken} so far"], rows)


def results(study: Study) -> PageTable:
    """Return what the methods are compared by; the last row is the floor."""
    text = score_text(study)
    targets = [f"Rounds to {text.target(t)}".replace(" ", "\N{NO-BREAK SPACE}") for t in study.targets]

    def cells(e: StudyEntry) -> list[Cell]:
        return [plain(text.spread(e.scores.final)), difference(study, e), *(reached(t.rounds) for t in e.targets)]

    return table(study, ["Final", "Difference", *targets], cells)


def scores(study: Study) -> PageTable:
    """Return other scores and costs; of a single method also the final score."""
    alone, text, clock = len(study.entries) == 1, score_text(study), has_clock(study)

    def cells(e: StudyEntry) -> list[Cell]:
        kinds = [e.scores.final] * alone + [e.scores.best, e.scores.last5]
        ratios = [formatting.figure(r.mean) for r in (e.kappa, e.rho) if r is not None]
        costs = [formatting.seconds(e.virtual.mean if e.virtual else None)] * clock
        costs += [formatting.seconds(e.seconds.mean), formatting.traffic(e.bytes.mean), *ratios]
        return [*(plain(text.spread(kind)) for kind in kinds), *map(plain, costs)]

    head = ["Final"] * alone + [f"Best {chosen(study)}", f"Last {last_scores(study)}"]
    head += ["Virtual time"] * clock + ["Time", "Traffic"]
    return table(study, head + ["κ", "ρ"] * has_ratios(study), cells, with_floor=alone)


def table(
    study: Study, head: list[str], cells: Callable[[StudyEntry], list[Cell]], with_floor: bool = True
) -> PageTable:
    """Make a row for every method of which all runs are done.

    Args:
        study: The study.
        head: The names of the columns after the method; the first is the final score.
        cells: Makes the cells of an entry.
        with_floor: Whether a last row shows the floor.

    Returns:
        The table.
    """
    rows = [PageRow(e.label, i, remarks(study, e), cells(e)) for i, e in enumerate(study.entries) if e.complete]
    if with_floor and rows and study.floor is not None:
        blank = [plain(NONE)] * (len(head) - 1)
        rows.append(PageRow(study.floor.name, None, [], [plain(score_text(study).value(study.floor.value)), *blank]))
    return PageTable(head, rows)


def plain(text: str) -> Cell:
    return text, []


def difference(study: Study, e: StudyEntry) -> Cell:
    if e.difference is None:
        return plain(NONE)
    remarks = interval(study, e.difference) + [e.verdict] * bool(e.verdict)
    return formatting.minus(score_text(study).difference(e.difference.mean)), remarks


def reached(rounds: Sequence[int | None]) -> Cell:
    """Return the mean over seeds as in the terminal's tables; what is in brackets there is small print here."""
    text, _, some = unless_never(rounds, lambda known: formatting.count(charts.mean(known))).partition(" (")
    return text, [some.rstrip(")")] if some else []


def remarks(study: Study, e: StudyEntry) -> list[str]:
    lines = [f"diverged with seed {d.seed}" for d in e.diverged]
    lines += [f"exploded with seed {x.seed} by round {x.round}" for x in e.exploded]
    lines += [] if e.epsilon is None else [f"differentially private: ε = {e.epsilon:.2f}"]
    leak = f"leaks test data: its {study.goes_by.spoken} is meaningless"
    return lines + ([leak] if e.leaks_test_data else [])


def interval(study: Study, d: PairedDifference) -> list[str]:
    """Return the confidence interval and the p-value, if there are enough seeds."""
    ends = [formatting.minus(score_text(study).difference(end)) for end in (d.low, d.high)]
    known = [] if d.low is None or d.high is None else [" to ".join(ends)]
    return known + ([] if d.p is None else [formatting.p_value(d.p)])
