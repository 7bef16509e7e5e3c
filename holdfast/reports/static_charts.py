"""The charts of a report as static images, drawn by matplotlib from the same descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.reports.charts import BarChart, Chart, HeatMap, LineChart
from holdfast.reports.formatting import wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The first is the reference: neutral. The others can be told apart by colour-blind readers (after Okabe and Ito).
HUES = ("#5b6670", "#0072b2", "#d55e00", "#009e73", "#b2528e", "#b8860b", "#3d9bd1", "#7a5195")
# After eight entries the colours repeat, with the next dash and hatch; page.js and page.css have the same rule.
DASHES, HATCHES = ("-", "--", ":", "-."), ("", "////", "----", "xxxx")
INK, MUTED, GRID = "#1c2429", "#667179", "#e4e8ea"
SHADES = ("#f4f8f9", "#c4dfe7", "#74b3c8", "#2a7391", "#0a2f45")
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "holdfast",  # the same chart gives the same file
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "hatch.linewidth": 1.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.parse_math": False,  # names may contain dollar signs
}


def save(chart: Chart, folder: Path) -> None:
    """Write a chart as ``<key>.png`` and ``<key>.svg``."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        figure = draw(chart)
        figure.savefig(folder / f"{chart.key}.png", dpi=160)
        figure.set_layout_engine("none")  # keep the layout of the PNG
        figure.savefig(folder / f"{chart.key}.svg", metadata={"Date": None})


def draw(chart: Chart) -> Figure:
    """Draw a chart."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, height(chart)), layout="constrained", facecolor="white")
    ax = figure.subplots()
    ax.set_title(chart.title, loc="left", fontsize=11, fontweight="bold")
    ax.spines[["top", "right", "left", "bottom"]].set_visible(False)
    ax.tick_params(length=0)
    if isinstance(chart, LineChart):
        _lines(ax, chart)
    elif isinstance(chart, BarChart):
        _bars(ax, chart)
    else:
        _heat(figure, ax, chart)
    return figure


def height(chart: Chart) -> float:
    """Return the height in inches."""
    if isinstance(chart, LineChart):
        return 3.6
    if isinstance(chart, BarChart):
        return 0.9 + 0.26 * len(chart.categories) * len(chart.series) + 0.1 * len(chart.categories)
    lines = sum(len(wrapped(name)) for name in chart.rows)
    longest = max((len(name) for name in chart.columns), default=0)
    return 1.2 + min(0.3 * max(lines, 2), 6.0) + (0.05 * min(longest, 24) if longest > 9 else 0)


def lap(hue: int) -> int:
    """Return how often all colours were used before this one."""
    return hue // len(HUES) % len(DASHES)


def _lines(ax: Axes, chart: LineChart) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    ends = []
    for s in chart.series:
        colour, dash = HUES[s.hue % len(HUES)], DASHES[lap(s.hue)]
        y, spread = np.array(s.y, float), np.nan_to_num(np.array(s.spread, float))
        if spread.any():
            ax.fill_between(s.x, y - spread, y + spread, color=colour, alpha=0.14, lw=0)
        mark = "o" if len(s.x) == 1 or chart.ticks else None
        ax.plot(s.x, y, color=colour, ls=dash, lw=1.8, marker=mark, solid_capstyle="round")
        known = np.flatnonzero(np.isfinite(y))
        ends.append((float(y[known[-1]]), s.x[known[-1]], s.label, colour))
    ax.grid(axis="y", color=GRID)
    ax.set_axisbelow(True)
    ax.set_xlabel(chart.across, color=MUTED)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if chart.ticks:
        ax.set_xticks(range(len(chart.ticks)), ["\n".join(wrapped(tick, 16)) for tick in chart.ticks])
    if chart.percent:
        ax.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    if chart.floor is not None:
        ax.axhline(chart.floor.value, color=MUTED, ls=(0, (4, 3)), lw=1)
        ends.append((chart.floor.value, max(x for s in chart.series for x in s.x), chart.floor.name, MUTED))
    if chart.percent:  # a band of deviations may go beyond what a percentage can be
        low, high = ax.get_ylim()
        ax.set_ylim(max(low, -0.01), min(high, 1.01))
    low, high = ax.get_ylim()
    labels = ["\n".join(wrapped(label)) for _, _, label, _ in ends]
    gaps = [0.055 * (high - low) * (1 + label.count("\n")) for label in labels]
    for (_, x, _, colour), label, at in zip(ends, labels, apart([e[0] for e in ends], gaps), strict=True):
        ax.annotate(
            label, (x, at), xytext=(6, 0), textcoords="offset points", va="center", color=colour, fontsize=8.5,
            annotation_clip=False,
        )  # fmt: skip


def apart(heights: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Move labels as little as possible so that neighbours of these sizes do not overlap.

    >>> apart([1.0, 1.0], [0.5, 0.5])
    [0.75, 1.25]
    """
    at = list(heights)
    order = sorted(range(len(at)), key=lambda i: at[i])
    for _ in range(50):
        for low, high in pairwise(order):
            short = (sizes[low] + sizes[high]) / 2 - (at[high] - at[low])
            if short > 1e-12:
                at[low], at[high] = at[low] - short / 2, at[high] + short / 2
    return at


def _bars(ax: Axes, chart: BarChart) -> None:
    from matplotlib.colors import to_rgba

    many = len(chart.series)
    top = chart.most or max([v for s in chart.series for v in s.values if v is not None], default=1.0) or 1.0
    for i, s in enumerate(chart.series):
        at = np.arange(len(chart.categories)) + (i - (many - 1) / 2) * 0.8 / many
        known = [v or 0.0 for v in s.values]
        colour = HUES[s.hue % len(HUES)]
        fills = [to_rgba(colour, 0.1 if hollow else 1.0) for hollow in s.hollow]
        ax.barh(at, known, height=0.72 / many, color=fills, hatch=HATCHES[lap(s.hue)], edgecolor="white", lw=0)
        ax.barh(at, known, height=0.72 / many, color="none", edgecolor=[colour if h else "none" for h in s.hollow])
        for y, value, text in zip(at, known, s.texts, strict=True):
            label = f"{text}  {s.label}" if many > 1 else text
            ax.text(value + 0.01 * top, y, label, va="center", fontsize=8, color=INK if value else MUTED)
    ax.set_yticks(np.arange(len(chart.categories)), ["\n".join(wrapped(c)) for c in chart.categories])
    ax.tick_params(axis="y", labelcolor=INK)
    ax.invert_yaxis()
    ax.set_xlim(0, top * 1.02)
    ax.set_xticks([])


def column_names(names: Sequence[str], upright: int = 9) -> tuple[list[str], int]:
    """Return the names of columns in full, and the angle at which they fit side by side."""
    if max(map(len, names)) <= upright:
        return list(names), 0
    return ["\n".join(wrapped(name, 24)) for name in names], 45


def _heat(figure: Figure, ax: Axes, chart: HeatMap) -> None:
    from matplotlib.colors import LinearSegmentedColormap, Normalize, PowerNorm

    values = np.array(chart.values, float)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    counted = chart.key == "split"
    norm: Any = PowerNorm(0.5, 0, max(1.0, high, 6 * float(values.mean()))) if counted else Normalize(low, high)
    shades = LinearSegmentedColormap.from_list("shades", SHADES)
    image = ax.imshow(values, aspect="auto", cmap=shades, norm=norm, interpolation="nearest")
    if values.size <= 250:
        for (r, c), value in np.ndenumerate(values):
            if np.isfinite(value) and (value or not counted):
                text = f"{100 * value:.0f}" if chart.percent else f"{value:.0f}" if counted else f"{value:.3g}"
                ax.text(c, r, text, ha="center", va="center", fontsize=7, color="white" if norm(value) > 0.5 else INK)
    else:
        figure.colorbar(image, ax=ax, pad=0.01)
    rows, columns = (max(1, -(-len(names) // most)) for names, most in ((chart.rows, 30), (chart.columns, 24)))
    names = ["\n".join(wrapped(name)) for name in chart.rows[::rows]]
    across, angle = column_names(chart.columns[::columns])
    ax.set_yticks(range(0, len(chart.rows), rows), names)
    ax.set_xticks(range(0, len(chart.columns), columns), across, rotation=angle, ha="right" if angle else "center")
    ax.set_xlabel(chart.across, color=MUTED)
    ax.set_ylabel(chart.down, color=MUTED)
