"""The picture of a search: the validation score against every parameter, a row of panels per method."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from holdfast.comparison.part_sweeps import value_to_text
from holdfast.tuning.search_axis import SearchAxis
from holdfast.tuning.tune_schema import TrialRecord, TunedEntry, TuneStudy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHADES = ("#c4cdd2", "#6fb1d0", "#0072b2")  # of trials that stopped at the first rung, at a later one, at the end
BEST, INK, GRID = "#d55e00", "#1c2429", "#e4e8ea"
WIDTH, HEIGHT = 2.6, 2.3  # inches of a panel
MARGIN = 0.06  # share of a range that is shown beyond its ends
STYLE: dict[Any, Any] = {"font.family": "sans-serif", "font.size": 8, "text.color": INK, "text.parse_math": False}


def picture(study: TuneStudy) -> bytes:
    """Return the picture as a PNG."""
    import matplotlib
    from matplotlib.figure import Figure

    columns = max(len(axes) for axes in study.plan.spaces.values())
    rows = len(study.entries)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH * columns + 0.6, HEIGHT * rows + 0.5), layout="constrained", facecolor="white")
        panels = figure.subplots(rows, columns, squeeze=False)
        for entry, line in zip(study.entries, panels, strict=True):
            axes = study.plan.spaces[entry.method]
            for ax, axis in zip(line, axes, strict=False):
                panel(ax, study, entry, axis)
            for ax in line[len(axes) :]:
                ax.set_visible(False)
            unit = ", %" if study.goes_by.percent else ""
            line[0].set_ylabel(f"validation {study.goes_by.spoken}{unit}")
            line[0].set_title(entry.method, loc="left", fontweight="bold")
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=140, metadata={"Software": None})
    return file.getvalue()


def panel(ax: Axes, study: TuneStudy, entry: TunedEntry, axis: SearchAxis) -> None:
    """Draw the scores of all trials against one parameter.

    Args:
        ax: Where to draw.
        study: The search.
        entry: The method.
        axis: The parameter.
    """
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GRID)
    ax.grid(color=GRID, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.set_xlabel(axis.name)
    unit = 100 if study.goes_by.percent else 1
    names = [value_to_text(axis.name, v) for v in axis.values or ()]

    def place(trial: TrialRecord) -> float:
        return float(
            names.index(value_to_text(axis.name, trial.values[axis.name])) if names else trial.values[axis.name]
        )

    def draw(trials: list[TrialRecord], label: str, **look: Any) -> None:
        shown = [(place(t), unit * t.last_score) for t in trials if t.last_score is not None]
        ax.scatter([x for x, _ in shown], [y for _, y in shown], label=label, **look)

    for at, rung in enumerate(study.plan.rungs):
        shade = SHADES[-1] if rung == study.plan.rungs[-1] else SHADES[min(at, 1)]
        draw([t for t in entry.trials if t.last_rung == rung], f"after round {rung}", s=22, color=shade)
    draw([t for t in entry.trials if t.number == entry.trial], "best", s=110, marker="*", color=BEST, zorder=3)
    if names:
        ax.set_xticks(range(len(names)), names)
        return
    if axis.log:
        ax.set_xscale("log")
    ax.minorticks_off()
    ticks = [axis.value_at(share) for share in (0.0, 0.5, 1.0)]
    ticks = [round(tick) for tick in ticks] if axis.whole else ticks
    ax.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
    ax.set_xlim(axis.value_at(-MARGIN), axis.value_at(1 + MARGIN))
