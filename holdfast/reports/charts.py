"""The charts of a report, described once: plotly draws them on the page, matplotlib as static images."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from holdfast.comparison.labels import slug
from holdfast.comparison.study_schema import Floor, Study, StudyEntry, TargetCost
from holdfast.comparison.tables import unless_never
from holdfast.reports import formatting
from holdfast.training.drift import MEASURES, PER_CLASS

Number = float | None


@dataclass(frozen=True)
class Line:
    """One curve.

    Attributes:
        label: The label of its entry.
        x: The rounds, the times on the virtual clock, or the positions of swept values.
        y: The mean over seeds.
        spread: The standard deviation; None where there is only one seed.
        hue: The number of its colour.
    """

    label: str
    x: Sequence[float]
    y: list[Number]
    spread: list[Number]
    hue: int


@dataclass(frozen=True)
class LineChart:
    """Curves over rounds, or over the values of a swept setting.

    Attributes:
        percent: Whether the values are fractions that are shown in percent.
        floor: The name and the value of a line across the chart.
        across: What the curves run over.
        ticks: The names of the positions 0, 1, ... on that axis, if they have names.
        tall: Whether the chart is the most important one of the page.
    """

    key: str
    title: str
    note: str
    series: list[Line]
    percent: bool = False
    floor: Floor | None = None
    across: str = "round"
    ticks: list[str] = field(default_factory=list)
    tall: bool = False
    kind: str = "lines"


@dataclass(frozen=True)
class Bar:
    """The bars of one entry, one per category.

    Attributes:
        label: The label of the entry.
        values: The lengths; None for a target that was never reached.
        texts: What is written at the ends.
        hollow: Whether a bar is hollow, because only some seeds reached the target.
        hue: The number of its colour.
    """

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
    """A table of shades.

    Attributes:
        across: What the columns are.
        down: What the rows are.
    """

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
    """Return None, rather than the mean of the other seeds, where a seed has no value, such as an infinite loss."""
    return None if None in values else mean(values)


def line(
    study: Study,
    entry: StudyEntry,
    hue: int,
    rounds: Sequence[int],
    rows: Sequence[Sequence[Number]],
    average: Callable[[Sequence[Number]], Number] = mean_of_all,
) -> Line:
    """Return the mean curve over the seeds, up to the round in which the first of them diverged.

    Args:
        study: The study.
        entry: The entry whose curve it is.
        hue: The number of its colour.
        rounds: The rounds of the curve.
        rows: The values, one row per seed.
        average: How to average over seeds.

    Returns:
        The curve. Runs that have not reached a round yet are left out of its mean.
    """
    reached = [last for _, last in last_rounds(study, entry)]
    known = [t for t in rounds if t <= end(study, entry)]
    columns = [
        [value for value, last in zip(column, reached, strict=True) if t <= last]
        for t, column in zip(known, zip(*rows, strict=True), strict=False)
    ]
    means = [average(c) for c in columns]
    bands = [None if m is None else deviation(c) for m, c in zip(means, columns, strict=True)]
    return Line(entry.label, known, means, bands, hue)


def last_rounds(study: Study, entry: StudyEntry) -> list[tuple[bool, int]]:
    """Return, for every seed, whether it diverged, and the last evaluated round."""
    diverged = {d.seed for d in entry.diverged}
    rounds, scores = entry.curves.rounds, entry.curves.test
    lasts = [max((t for t, v in zip(rounds, row, strict=True) if v is not None), default=0) for row in scores]
    return [(seed in diverged, last) for seed, last in zip(study.seeds, lasts, strict=True)]


def end(study: Study, entry: StudyEntry) -> float:
    """Return the last evaluated round before a seed diverged; infinite if none did."""
    return min((last for diverged, last in last_rounds(study, entry) if diverged), default=math.inf)


def coloured(study: Study) -> list[tuple[int, StudyEntry]]:
    """Return the entries with the numbers of their colours: the first is neutral, unless it is alone."""
    return list(enumerate(study.entries, 0 if len(study.entries) > 1 else 1))


# ------------------------------------------------------------------------------------------------------- curves
def curve(study: Study, values: Callable[[StudyEntry], list[list[Number]]], chart: LineChart) -> list[Chart]:
    """Return the chart with a line per entry, or nothing where there are no values."""
    series = [line(study, e, i, e.curves.rounds, values(e)) for i, e in coloured(study) if values(e)]
    return with_points(replace(chart, series=series))


def with_points(chart: LineChart) -> list[Chart]:
    """Return the chart with the lines that have points, or nothing."""
    series = [s for s in chart.series if any(v is not None for v in s.y)]
    return [replace(chart, series=series)] if series else []


def scores(study: Study) -> list[Chart]:
    """Return the metric on the test data, and on the validation data if there are any."""
    key, name, note = slug(study.metric), study.goes_by.spoken, "of the global model after each round"
    note += "" if study.higher_is_better else "; lower is better"
    test = LineChart(key, f"Test {name}", note, [], study.percent, study.floor, tall=True)
    chosen = f"{note}; best rounds are chosen by it"
    other = LineChart(f"validation-{key}", f"Validation {name}", chosen, [], study.percent)
    judged = curve(study, lambda e: e.curves.validation, other)
    return curve(study, lambda e: e.curves.test, test) + over_clock(study, test) + judged


def over_clock(study: Study, test: LineChart) -> list[Chart]:
    """Return the same curves over the virtual clock, at the mean time of each round, if there is one."""
    series: list[Line] = []
    for hue, e in coloured(study):
        rounds = e.curves.rounds
        score = line(study, e, hue, rounds, e.curves.test)
        times = line(study, e, hue, rounds, e.curves.virtual or [], mean).y
        known = [i for i, t in enumerate(times) if t is not None]
        x = [t for t in times if t is not None]
        series.append(replace(score, x=x, y=[score.y[i] for i in known], spread=[score.spread[i] for i in known]))
    title, note = f"{test.title} over virtual time", "of the global model, by the time on the virtual clock"
    chart = replace(test, key=f"{test.key}-over-virtual-time", title=title, note=note, series=series)
    return with_points(replace(chart, across="virtual seconds", tall=False))


def losses(study: Study) -> list[Chart]:
    """Return the losses on the test data and in training; the first only if it is not the metric itself."""
    what = {"classification": "cross-entropy", "next-token": "cross-entropy"}.get(study.task, "mean loss")
    test = LineChart("test-loss", "Test loss", f"{what} of the global model on the test data", [])
    train = LineChart("train-loss", "Training loss", "of the clients during their local steps", [])
    on_test = [] if study.metric == "loss" else curve(study, lambda e: e.curves.test_loss, test)
    return on_test + curve(study, lambda e: e.curves.train_loss, train)


def drift(study: Study) -> list[Chart]:
    """Return one chart per measure, in the order in which they are explained."""
    charts: list[Chart] = []
    for m in MEASURES:
        recorded = [(i, e, e.drift.get(m.name)) for i, e in coloured(study)]
        # A measure may be undefined in a round, such as angles in a cohort of one: that seed is left out there.
        series = [line(study, e, i, d.rounds, d.values, mean) for i, e, d in recorded if d and d.rounds]
        charts += with_points(LineChart(f"drift-{m.name.replace('_', '-')}", m.title, m.meaning, series))
    return charts


def feature_norms(study: Study) -> list[Chart]:
    """Return the feature norm of every class over the rounds of a single run."""
    only = study.entries[0]
    names = [(c, f"{PER_CLASS}{number}") for number, c in enumerate(study.classes)]
    known = [(c, only.drift[name]) for c, name in names if name in only.drift]
    if len(study.entries) > 1 or not known:
        return []
    lines = [line(study, only, 0, curve.rounds, curve.values, mean) for _, curve in known]
    rounds, values = [int(t) for t in lines[0].x], [one.y for one in lines]
    if not rounds:
        return []
    title, note = (
        "Feature norms by class",
        "mean norm of the features that the global model computes for each class",
    )
    rows = [c for c, _ in known]
    return [HeatMap("feature-norms", title, note, rows, [str(t) for t in rounds], values, "round", "class")]


# ------------------------------------------------------------------------------------------------- cost to target
@dataclass(frozen=True)
class CostKind:
    """What it costs to reach a target, in one unit.

    Attributes:
        key: The end of the chart's key.
        title: The beginning of the chart's title.
        note: What exactly is counted.
        values: Gives the cost of every seed.
        show: Turns a cost into text.
    """

    key: str
    title: str
    note: str
    values: Callable[[TargetCost], Sequence[Number]]
    show: Callable[[Number], str]


COSTS = (
    CostKind("rounds", "Rounds", "of communication", lambda cost: cost.rounds, formatting.count),
    CostKind("virtual", "Virtual time", "on the virtual clock", lambda cost: cost.virtual or [], formatting.seconds),
    CostKind("seconds", "Time", "wall-clock, without warm-up", lambda cost: cost.seconds, formatting.seconds),
    CostKind("bytes", "Traffic", "up and down", lambda cost: cost.bytes, formatting.traffic),
)


def costs(study: Study) -> list[BarChart]:
    """Return rounds, time and traffic until each target was first reached."""
    done = [(i, e) for i, e in coloured(study) if e.complete]
    if not study.targets or not done:
        return []
    categories = [formatting.score_text(study).target(t) for t in study.targets]
    return [
        BarChart(
            f"to-target-{kind.key}", f"{kind.title} to target", kind.note, categories,
            [cost_bar(e, kind, i) for i, e in done],
        )
        for kind in COSTS
        if any(len(kind.values(target)) for _, e in done for target in e.targets)
    ]  # fmt: skip


def cost_bar(entry: StudyEntry, kind: CostKind, hue: int) -> Bar:
    costs = [kind.values(target) for target in entry.targets]
    texts = [unless_never(seeds, lambda known: kind.show(mean(known))) for seeds in costs]
    return Bar(entry.label, [mean(seeds) for seeds in costs], texts, [by_some(seeds) for seeds in costs], hue)


def by_some(seeds: Sequence[Number]) -> bool:
    """Tell whether only some seeds reached a target: their mean cannot be compared with that of all seeds."""
    return None in seeds and mean(seeds) is not None


# --------------------------------------------------------------------------------------------------- by class, split
def by_class(study: Study) -> list[Chart]:
    """Return a heat map of methods and classes, or the bars of the only method."""
    scored = [(i, e.label, e.by_class.mean) for i, e in coloured(study) if e.by_class and e.by_class.mean]
    title, note = "Accuracy by class", "on the test data, after the last round"
    if not scored:
        return []
    if len(scored) == 1:
        hue, label, values = scored[0]
        bar = Bar(label, values, [formatting.percent(v) for v in values], [False] * len(values), hue)
        return [BarChart("by-class", title, note, study.classes, [bar], most=1.0)]
    labels, rows = [label for _, label, _ in scored], [values for _, _, values in scored]
    return [HeatMap("by-class", title, note, labels, study.classes, rows, "class", "", percent=True)]


def split(study: Study) -> list[Chart]:
    counts = study.split.counts
    if not counts:
        return []
    rows, what = study.classes, "class" if study.task == "classification" else "target"
    values: list[list[Number]] = [[client[c] for client in counts] for c in range(len(rows))]
    names = study.split.names or []
    columns = names if len(names) == len(counts) else [str(i) for i in range(len(counts))]
    return [
        HeatMap(
            "split",
            f"Samples by client and {what}",
            "number of training samples",
            rows,
            columns,
            values,
            "client",
            what,
        )
    ]
