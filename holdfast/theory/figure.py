"""The style of the theory's pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PURPLE, RED, GREY = "#2a7391", "#d98032", "#4c9a5a", "#7b4ea3", "#c0262d", "#909090"


def panels(title: str) -> tuple[Figure, list[Axes]]:
    """Return a figure with a title and four plots."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 7.6), dpi=100, layout="constrained", facecolor="white")
    figure.suptitle(title, fontsize=12, fontweight="bold", x=0.01, ha="left")
    axes = list(figure.subplots(2, 2).flat)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8.5)
    return figure, axes


def label(ax: Axes, title: str, x: str, y: str) -> None:
    """Set the title and the labels of both axes.

    Args:
        ax: The plot.
        title: Its title.
        x: The label of the horizontal axis.
        y: The label of the vertical axis.
    """
    ax.set_title(title, fontsize=10, loc="left")
    ax.set_xlabel(x, fontsize=9)
    ax.set_ylabel(y, fontsize=9)


def legend(ax: Axes, where: Any = "best") -> None:
    """Add a legend."""
    ax.legend(fontsize=8, frameon=False, loc=where)


def save(figure: Figure, path: Path) -> None:
    """Write the figure to a file."""
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise HoldfastError(f"cannot write the picture {path}: {reason}; choose another --png") from error
