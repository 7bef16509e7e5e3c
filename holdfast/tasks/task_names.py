"""Look up tasks by name: ``classification``, ``multilabel``, ``regression``, ``next-token``, or your own."""

from __future__ import annotations

from holdfast.core.discovery import discover
from holdfast.core.params import build, one
from holdfast.tasks.task import Task


def tasks() -> dict[str, type[Task]]:
    """Return every task by name: those of ``holdfast/tasks`` and those that a user has written."""
    return discover("holdfast.tasks", Task)


def read_task(text: str) -> Task:
    """Return the task that a text such as ``regression(standardise=false)`` names."""
    return build(one(text, "task"), tasks(), "task")
