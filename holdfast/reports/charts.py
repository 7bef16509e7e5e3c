"""The charts of a report, described once: the page draws them with plotly, their still twins are made by matplotlib."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.comparison.tables import unless_never
from holdfast.reports import formatting
from holdfast.training.drift import MEASURES, PER_CLASS

Number = float | None


@dataclass(frozen=True)
class Line:
    """The mean over seeds, and the standard deviation where there are several."""

    label: str
    x: list[int]
    y: list[Number]
    spread: list[Number]
    hue: int  # number of its colour


@dataclass(frozen=True)
class LineChart:
    """Curves over rounds."""

    key: str
    title: str
    note: str
    series: list[Line]
    percent: bool = False
    kind: str = "lines"


@dataclass(frozen=True)
class Bar:
    """One bar per category; a value that was never reached is None, one that only some seeds reached is hollow."""

    label: str
    values: list[Number]
    texts: list[str]
    hollow: list[bool]
    hue: int


@dataclass(frozen=True)
class BarChart:
    """Horizontal bars in groups."""

    key: str
    title: str
    note: str
    categories: list[str]
    series: list[Bar]
    most: float | None = None  # the axis ends here
    kind: str = "bars"


@dataclass(frozen=True)
class HeatMap:
    """A table of shades: rows downwards, columns across."""

    key: str
    title: str
    note: str
    rows: list[str]
    columns: list[str]
    values: list[list[Number]]
    across: str
    down: str
    percent: bool = False
    kind: str = "heat"


Chart = LineChart | BarChart | HeatMap


def mean(values: Sequence[Number]) -> Number:
    known = [v for v in values if v is not None]
    return statistics.fmean(known) if known else None


def deviation(values: Sequence[Number]) -> Number:
    known = [v for v in values if v is not None]
    return statistics.stdev(known) if len(known) > 1 else None


def mean_of_all(values: Sequence[Number]) -> Number:
    """Not that of the luckier seeds: None where one of them has no value, such as an infinite loss."""
    return None if None in values else mean(values)


def line(
    study: dict[str, Any],
    entry: dict[str, Any],
    hue: int,
    rounds: Sequence[int],
    rows: Sequence[Sequence[Number]],
    average: Callable[[Sequence[Number]], Number] = mean_of_all,
) -> Line:
    """The mean curve over the seeds, up to the round in which the first of them diverged.

    Runs that are still to get to a round are left out of its mean.
    """
    reached = [last for _, last in last_rounds(study, entry)]
    known = [t for t in rounds if t <= end(study, entry)]
    columns = [
        [value for value, last in zip(column, reached, strict=True) if t <= last]
        for t, column in zip(known, zip(*rows, strict=True), strict=False)
    ]
    means = [average(c) for c in columns]
    bands = [None if m is None else deviation(c) for m, c in zip(means, columns, strict=True)]
    return Line(entry["label"], known, means, bands, hue)


def last_rounds(study: dict[str, Any], entry: dict[str, Any]) -> list[tuple[bool, int]]:
    """Of every seed, whether it diverged, and the last round that was evaluated."""
    diverged = {d["seed"] for d in entry.get("diverged") or []}
    rounds, scores = entry["curves"]["rounds"], entry["curves"]["test_accuracy"]
    lasts = [max((t for t, v in zip(rounds, row, strict=True) if v is not None), default=0) for row in scores]
    return [(seed in diverged, last) for seed, last in zip(study["seeds"], lasts, strict=True)]


def end(study: dict[str, Any], entry: dict[str, Any]) -> float:
    """The last evaluated round before a seed diverged; infinite where none did."""
    return min((last for diverged, last in last_rounds(study, entry) if diverged), default=math.inf)


def hued(study: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """The entries with their colours: the first is neutral, unless it is alone."""
    entries = study["entries"]
    return list(enumerate(entries, 0 if len(entries) > 1 else 1))


def whole(entry: dict[str, Any]) -> bool:
    """Whether all runs of an entry are done; until then it has curves, and no results."""
    progress = entry.get("progress")
    return progress is None or progress["done"] == progress["runs"]


# ------------------------------------------------------------------------------------------------------- curves
def curve(study: dict[str, Any], name: str, key: str, title: str, note: str, percent: bool = False) -> list[Chart]:
    series = [
        line(study, e, i, e["curves"]["rounds"], e["curves"][name]) for i, e in hued(study) if e["curves"].get(name)
    ]
    return drawn(LineChart(key, title, note, series, percent))


def drawn(chart: LineChart) -> list[Chart]:
    """The chart with the lines that have points, or none."""
    series = [s for s in chart.series if any(v is not None for v in s.y)]
    return [replace(chart, series=series)] if series else []


def accuracy(study: dict[str, Any]) -> list[Chart]:
    return curve(study, "test_accuracy", "accuracy", "Test accuracy", "of the global model after each round", True)


def losses(study: dict[str, Any]) -> list[Chart]:
    test = curve(study, "test_loss", "test-loss", "Test loss", "cross-entropy of the global model on the test data")
    train = curve(study, "train_loss", "train-loss", "Training loss", "what the clients saw in their local steps")
    return test + train


def drift(study: dict[str, Any]) -> list[Chart]:
    """One chart per measure, in the order in which they are explained."""
    found: list[Chart] = []
    for m in MEASURES:
        told = [(i, e, e.get("drift", {}).get(m.name)) for i, e in hued(study)]
        # A figure may not be defined in a round, such as angles in a cohort of one: that seed is left out there.
        series = [line(study, e, i, d["rounds"], d["values"], mean) for i, e, d in told if d and d["rounds"]]
        found += drawn(LineChart(f"drift-{m.name.replace('_', '-')}", m.title, m.meaning, series))
    return found


def feature_norms(study: dict[str, Any]) -> list[Chart]:
    """The feature norm of every class, over the rounds of a single run."""
    only = study["entries"][0]
    figures = only.get("drift", {})
    names = [(c, f"{PER_CLASS}{number}") for number, c in enumerate(study["classes"])]
    known = [(c, figures[name]) for c, name in names if name in figures]
    if len(study["entries"]) > 1 or not known:
        return []
    lines = [line(study, only, 0, figure["rounds"], figure["values"], mean) for _, figure in known]
    rounds, values = lines[0].x, [one.y for one in lines]
    if not rounds:
        return []
    title, note = "Feature norms by class", "mean length of the features that the global model gives a class"
    rows = [c for c, _ in known]
    return [HeatMap("feature-norms", title, note, rows, [str(t) for t in rounds], values, "round", "class")]


# ------------------------------------------------------------------------------------------------- cost to target
def costs(study: dict[str, Any]) -> list[BarChart]:
    """Rounds, time and traffic until each target accuracy was reached first."""
    kinds: tuple[tuple[str, str, Callable[[Number], str]], ...] = (
        ("rounds", "Rounds", formatting.count),
        ("seconds", "Time", formatting.seconds),
        ("bytes", "Traffic", formatting.traffic),
    )
    targets = study["targets"]
    if not targets or not any(whole(e) for e in study["entries"]):
        return []
    found: list[BarChart] = []
    for name, title, show in kinds:
        series = [cost(e, name, i, show) for i, e in hued(study) if whole(e)]
        categories = [f"{100 * t:g} %" for t in targets]
        note = {"rounds": "of communication", "seconds": "by the clock, warming up included", "bytes": "up and down"}
        found.append(BarChart(f"to-target-{name}", f"{title} to target", note[name], categories, series))
    return found


def cost(entry: dict[str, Any], name: str, hue: int, show: Callable[[Number], str]) -> Bar:
    reached = [target[name] for target in entry["targets"]]
    texts = [unless_never(seeds, lambda known: show(mean(known))) for seeds in reached]
    return Bar(entry["label"], [mean(seeds) for seeds in reached], texts, [some(seeds) for seeds in reached], hue)


def some(seeds: Sequence[Number]) -> bool:
    """Whether a target was reached, but not by all seeds: the mean of the others is no mean to compare with."""
    return None in seeds and mean(seeds) is not None


# --------------------------------------------------------------------------------------------------- by class, split
def by_class(study: dict[str, Any]) -> list[Chart]:
    """Methods by classes; the bars of one method when there is no other."""
    told = [(i, e) for i, e in hued(study) if (e.get("by_class") or {}).get("mean")]
    classes = [str(c) for c in study["classes"]]
    title, note = "Accuracy by class", "on the test data, after the last round"
    if not told:
        return []
    if len(told) == 1:
        hue, only = told[0]
        values = only["by_class"]["mean"]
        bar = Bar(only["label"], values, [formatting.percent(v) for v in values], [False] * len(values), hue)
        return [BarChart("by-class", title, note, classes, [bar], most=1.0)]
    values = [e["by_class"]["mean"] for _, e in told]
    return [HeatMap("by-class", title, note, [e["label"] for _, e in told], classes, values, "class", "", percent=True)]


def split(study: dict[str, Any]) -> list[Chart]:
    counts = (study.get("split") or {}).get("counts")
    if not counts:
        return []
    rows = [str(c) for c in study["classes"]]
    values: list[list[Number]] = [[client[c] for client in counts] for c in range(len(rows))]
    columns = [str(i) for i in range(len(counts))]
    return [
        HeatMap(
            "split", "Who holds what", "samples of every client and class", rows, columns, values, "client", "class"
        )
    ]
