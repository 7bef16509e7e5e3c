"""The metric against each swept setting: a chart per setting, a line per method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.comparison.labels import slug
from holdfast.comparison.part_sweeps import value_to_text
from holdfast.comparison.study_schema import Study, StudyEntry
from holdfast.comparison.tables import listed
from holdfast.reports.charts import Chart, Line, LineChart


def sweep_charts(study: Study) -> list[Chart]:
    """Return a chart for every swept setting that has several values; nothing until a run is done."""
    return [chart for name, values in study.sweep.items() if len(values) > 1 for chart in against(study, name, values)]


def against(study: Study, name: str, values: Sequence[Any]) -> list[Chart]:
    """Return the chart of the metric against one setting.

    Args:
        study: The comparison.
        name: The setting, or the parameter of a part.
        values: Its values.

    Returns:
        The chart, if any point has a score.
    """
    ordered = in_order(values)
    lines = [line(study, method, hue, name, ordered) for hue, method in hues(study)]
    known = [one for one in lines if any(y is not None for y in one.y)]
    if not known:
        return []
    texts = [value_to_text(name, value) for value in ordered]
    return [
        LineChart(
            f"sweep-{slug(name)}", f"Final {study.goes_by.spoken} by {name}", note(study, name), known, study.percent,
            across=name, ticks=texts,
        )
    ]  # fmt: skip


def hues(study: Study) -> list[tuple[int, str]]:
    """Return the methods with the numbers of their colours: the first is neutral, unless it is alone."""
    return list(enumerate(study.methods, 0 if len(study.methods) > 1 else 1))


def in_order(values: Sequence[Any]) -> list[Any]:
    """Return numbers in their order, and anything else as it is listed."""
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return sorted(values) if numbers else list(values)


def line(study: Study, method: str, hue: int, name: str, values: Sequence[Any]) -> Line:
    """Return the scores of a method: one that does not have the swept parameter is the same everywhere.

    Args:
        study: The comparison.
        method: The method.
        hue: The number of its colour.
        name: The swept setting.
        values: Its values, in order.

    Returns:
        The line, at positions 0, 1, ...
    """
    entries = [e for e in study.entries if e.method == method and e.complete]
    points = [best_of(study, [e for e in entries if e.settings.get(name, value) == value]) for value in values]
    finals = [point.scores.final if point else None for point in points]
    means = [None if final is None else final.mean for final in finals]
    bands = [None if final is None else final.std for final in finals]
    return Line(method, list(range(len(values))), means, bands, hue)


def best_of(study: Study, entries: Sequence[StudyEntry]) -> StudyEntry | None:
    """Return the best point, as best points of a sweep are chosen; None where no point has a score."""
    scored = {mean: e for e in reversed(entries) if (mean := e.scores.chosen_by.mean) is not None}
    best = study.goes_by.best(scored)
    return None if best is None else scored[best]


def note(study: Study, name: str) -> str:
    """Say what a point of the chart is, and what was chosen for it."""
    others = [other for other, values in study.sweep.items() if other != name and len(values) > 1]
    direction = "" if study.higher_is_better else "; lower is better"
    if not others:
        return f"on the test data{direction}"
    by = "chosen by validation" if study.chosen_on == "validation" else "chosen on test data"
    return f"on the test data, at the best {listed(others)} of each method and value, {by}{direction}"
