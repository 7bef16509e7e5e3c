"""Two tables about the baseline: how near every reading brings it to print, and what each choice is worth."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.comparison.score_text import NONE
from holdfast.comparison.study_schema import PairedDifference
from holdfast.comparison.table_texts import escaped_markdown, markdown_table
from holdfast.reproduce.attribution import Attribution, attributions
from holdfast.reproduce.baseline_levels import NEAR, POINTS, baseline_levels, baselines, unknown_level
from holdfast.reproduce.claims import same
from holdfast.reproduce.markdown import published, shown
from holdfast.reproduce.outcomes import SEEDS
from holdfast.reproduce.table_schema import CellRecord, TableRecord


def each_table(tables: Sequence[TableRecord]) -> list[TableRecord]:
    """Return every table once, whatever readings it was run under."""
    return list({(t.paper, t.table, t.circumstances): t for t in reversed(tables)}.values())[::-1]


# -- readings --------------------
def readings_sections(tables: Sequence[TableRecord]) -> list[str]:
    """Return a section for every table with a baseline: its level under every reading that was tried."""
    return [readings_section(same(tables, t, t.table)) for t in each_table(tables) if baselines(t)]


def readings_section(tried: Sequence[TableRecord]) -> str:
    """Return the level of a table's baseline under the readings that were tried, row by row."""
    t = tried[0]
    title = f"## {t.paper}, table {t.table}: the baseline under every reading, {t.scale} scale"
    return "\n\n".join(filter(None, [escaped_markdown(title), *readings_text(tried)])) + "\n"


def readings_text(tried: Sequence[TableRecord]) -> list[str]:
    """Return the table of the readings and what it says."""
    tried = [t for t in tried if not t.reading.alone and ran(t)]
    if not tried:
        return ["No baseline was run."]
    smoke = tried[0].scale == "smoke"  # on other data: there is nothing to compare
    levels = {} if smoke else {level.table.reading.name: level for level in baseline_levels(tried)}
    rows = []
    for t in tried:
        level = levels.get(t.reading.name)
        gap = f"{level.gap:.2f} points ({counted_rows(level.rows)})" if level else NONE
        made = "; ".join(c.name for c in t.reading.choices) or t.reading.why
        for row in t.rows:
            cells = [(name, t.column(row, name)) for name in baselines(t)]
            rows += [
                [t.reading.name, made, f"{row.name}, {name}", published(c), with_interval(c.runs.ours.mean, c), gap]
                for name, c in cells
                if c.runs is not None and c.runs.ours is not None and c.runs.ours.mean is not None
            ]
    return [
        markdown_table(["reading", "choices", "baseline", "published", "ours", "mean distance"], rows),
        "\n".join(map(escaped_markdown, reasons(tried))),
        conclusion(tried),
    ]


def reasons(tried: Sequence[TableRecord]) -> list[str]:
    """Return why one may read the paper so, reading by reading, and the reason and source of each choice once."""
    readings = [t.reading for t in tried if t.reading.choices]
    lines = [f"- “{r.name}”: {r.why}" for r in readings if r.why]
    choices = [(c, f" ({c.source})" if c.source else "") for r in readings for c in r.choices]
    return list(dict.fromkeys([*lines, *(f"- {c.name}: {c.why}{source}" for c, source in choices)]))


def with_interval(mean: float, c: CellRecord) -> str:
    """Return a number of ours with its standard deviation, if there are several seeds."""
    assert c.runs is not None
    assert c.runs.ours is not None
    std = c.runs.ours.std
    return shown(mean, c) + ("" if std is None else f" ± {shown(std, c)}")


def conclusion(tried: Sequence[TableRecord]) -> str:
    """Say which reading the baseline asks for."""
    if tried[0].scale != "full":
        return f"At {tried[0].scale} scale no reading is chosen."
    levels = baseline_levels(tried)
    if not levels:
        return f"No reading is chosen: {unknown_level(tried)}."
    near = [level.table.reading.name for level in levels if level.near]
    if not near:
        nearest = levels[0].table.reading.name
        return f"No reading brings the baseline within {NEAR:g} points of print; the nearest is “{nearest}”."
    more = f" Also within {NEAR:g} points: {', '.join(f'“{name}”' for name in near[1:])}." if near[1:] else ""
    return f"The baseline asks for the reading “{near[0]}”.{more}"


def counted_rows(n: int) -> str:
    """Return a number of rows."""
    return "1 row" if n == 1 else f"{n} rows"


def ran(t: TableRecord) -> bool:
    """Tell whether a baseline of the table was run."""
    return any(t.column(row, name).ran for row in t.rows for name in baselines(t))


# -- what a choice is worth --------------------
def attribution_sections(tables: Sequence[TableRecord]) -> list[str]:
    """Return a section for every reading of a table whose choices were run by themselves."""
    return [attribution_section(a) for t in each_table(tables) for a in attributions(tables, t)]


def attribution_section(a: Attribution) -> str:
    """Return what each choice of a reading is worth, as a section."""
    title = f"## {a.goal.paper}, table {a.goal.table}: what the choices of “{a.goal.reading.name}” are worth"
    return "\n\n".join([escaped_markdown(f"{title}, {a.goal.scale} scale"), *attribution_text(a)]) + "\n"


def attribution_text(a: Attribution) -> list[str]:
    """Return the table of the choices and what it says."""
    unit = next((c.unit for c in a.goal.cells if c.unit in POINTS), "%")
    rows = [[name, points(step, unit)] for name, step in a.steps.items()]
    rows.append(["all together", points(a.whole, unit)])
    each = ", ".join(baselines(a.plain))
    known = (
        [] if a.means is None else ["Printed: {:g}; the plain reading: {:.4g}; all together: {:.4g}.".format(*a.means)]
    )
    return [
        markdown_table(["choice", "points"], rows),
        f"Each line changes the plain reading by this choice alone; measured on {each}, on average over the rows that "
        f"both have run, with the 95% interval over seeds. Fewer than {SEEDS} seeds decide nothing.",
        *known,
    ]


def points(d: PairedDifference | None, unit: str) -> str:
    """Return a difference in points, with its interval and the number of seeds."""
    if d is None:
        return "not run"
    factor = POINTS.get(unit, 1.0)
    low, high = (None if v is None else v * factor for v in (d.low, d.high))
    interval = "" if low is None or high is None else f" [{low:+.2f}, {high:+.2f}]"
    return f"{d.mean * factor:+.2f}{interval} ({d.n} seed{'s' * (d.n > 1)})"


def points_of(value: float, unit: str) -> str:
    """Return a difference in points, with its sign."""
    return f"{value * POINTS.get(unit, 1.0):+.2f}"
