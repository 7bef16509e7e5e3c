"""The scores of a finished run as a small table: every metric, beside the floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.tasks.task import Task

WIDEST = 48  # characters of a metric's name; more would not fit in 80 columns
UNDEFINED = "-"
OF_CLASS = ("recall", "precision")  # scores of one of two classes


def score_lines(summary: Mapping[str, Any], floor_name: str, positive: str | None = None) -> list[str]:
    """Return the lines of the table, the metric that the run goes by first.

    Args:
        summary: The summary of the run.
        floor_name: What the floor predicts, such as ``majority class``.
        positive: The second of two classes, whose recall and precision are shown.

    Returns:
        The lines, of at most 80 characters; none if the run has no further scores to show.
    """
    scores, floor = summary.get("final_scores") or {}, summary.get("floor") or {}
    if not scores or summary.get("floor") is None:
        return []
    names = sorted(scores, key=lambda name: name != summary["metric"])
    head = ["score", "test data", *([floor_name] if floor else [])]
    shown = {name: f"{name} of {positive}" if positive and name in OF_CLASS else name for name in names}
    rows = [
        [_cut(shown[name]), _number(scores[name]), *([_number(floor.get(name))] if floor else [])] for name in names
    ]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return [
        "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(pairs)).rstrip()
        for pairs in (list(zip(row, widths, strict=True)) for row in (head, *rows))
    ]


def positive_of(task: Task, classes: Sequence[str]) -> str | None:
    """Return the name of the positive one of two classes; None in any other task."""
    return classes[1] if task.has_classes and len(classes) == 2 else None


def _cut(name: str) -> str:
    return name if len(name) <= WIDEST else f"{name[: WIDEST - 3]}..."


def _number(value: float | None) -> str:
    if value is None:
        return UNDEFINED
    return f"{value:.4f}" if abs(value) < 1e5 else f"{value:.4g}"
