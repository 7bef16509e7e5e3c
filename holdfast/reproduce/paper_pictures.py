"""A picture for each paper: its main table, ours against printed, with intervals over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.comparison.stats import CONFIDENCE, student
from holdfast.reproduce.claims import claims, shown_table, verdicts
from holdfast.reproduce.table_schema import CellRecord, TableRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURES = "pictures"  # below docs
OURS, PRINTED, GRID, INK = "#0072b2", "#d55e00", "#e4e8ea", "#1c2429"
STYLE: dict[Any, Any] = {"font.size": 9, "text.color": INK, "axes.edgecolor": GRID, "text.parse_math": False}
MOST = 40  # cells in a picture


def main_table(tables: Sequence[TableRecord]) -> TableRecord | None:
    """Return a paper's table to draw: the first that has numbers beside printed ones, if possible on published data."""
    shown = [shown_table(tables, of, verdicts(tables, of)[0]) for of in claims(tables)]
    found = sorted(filter(drawn, shown), key=lambda t: not any(runs.on_published_data for runs in t.runs))
    return found[0] if found else None


def drawn(t: TableRecord) -> list[tuple[str, list[tuple[str, CellRecord]]]]:
    """Return the rows and cells to draw: those with a number of ours."""
    rows = [
        (row.name, [(name, c) for name, c in zip(t.columns, row.cells, strict=True) if has_number(c)]) for row in t.rows
    ]
    found = [(name, cells) for name, cells in rows if any(c.published is not None for _, c in cells)]
    while len(found) > 1 and sum(len(cells) for _, cells in found) > MOST:
        found.pop()
    return found


def has_number(c: CellRecord) -> bool:
    """Tell whether a cell has a number of ours that can be drawn."""
    return c.runs is not None and c.runs.ours is not None and c.runs.ours.mean is not None


def half_width(c: CellRecord) -> float:
    """Return half the 95% interval of our mean over seeds; 0 for a single seed, or where scipy is not installed."""
    assert c.runs is not None
    assert c.runs.ours is not None
    values = [v for v in c.runs.ours.values if v is not None]
    t = student()
    if len(values) < 2 or t is None:
        return 0.0
    return float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))


def write_picture(t: TableRecord, file: Path) -> None:
    """Draw a table: every cell is a line, with the printed number and ours."""
    import matplotlib
    from matplotlib.figure import Figure

    rows = drawn(t)
    lines = sum(len(cells) + 1 for _, cells in rows)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 1.1 + 0.19 * lines), layout="constrained", facecolor="white")
        ax = figure.subplots()
        draw(ax, t, rows)
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
        figure.savefig(file, dpi=130, metadata={"Software": None})


def draw(ax: Axes, t: TableRecord, rows: Sequence[tuple[str, Sequence[tuple[str, CellRecord]]]]) -> None:
    """Draw the rows of a table, the first at the top.

    Args:
        ax: What to draw on.
        t: The table.
        rows: Its rows, and of each the columns and cells.
    """
    at, ticks, labels = 0, [], []
    for name, cells in rows:
        ax.text(0.0, at, name, transform=ax.get_yaxis_transform(), va="center", ha="left", fontweight="bold")
        for column, c in cells:
            at += 1
            ticks.append(at)
            labels.append(column)
            draw_cell(ax, at, c)
        at += 1
    ax.set_yticks(ticks, labels)
    ax.set_ylim(at, -0.8)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(length=0)
    ax.grid(axis="x", color=GRID)
    ax.set_axisbelow(True)
    ax.set_xlabel(f"accuracy [{t.unit}]" if t.unit in ("%", "fraction") else f"{t.measure} [{t.unit}]")
    ax.set_title(f"{t.name}, table {t.table}, read as “{t.reading.name}”", loc="left", fontsize=10, fontweight="bold")
    ax.plot([], [], "D", color=PRINTED, fillstyle="none", label="printed")
    ax.plot([], [], "o", color=OURS, label="ours, with the 95% interval over seeds")


def draw_cell(ax: Axes, at: float, c: CellRecord) -> None:
    """Draw a cell at a height: the printed number, and ours with its interval."""
    assert c.runs is not None
    assert c.runs.ours is not None
    if c.published is not None and math.isfinite(c.published):
        ax.plot([c.published], [at], "D", color=PRINTED, fillstyle="none", markersize=5)
    ax.errorbar([c.runs.ours.mean or 0.0], [at], xerr=[half_width(c)], fmt="o", color=OURS, markersize=4, capsize=2.5)
