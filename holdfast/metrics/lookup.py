"""Look up metrics by name."""

from __future__ import annotations

from holdfast.core.discovery import discover
from holdfast.core.errors import HoldfastError
from holdfast.core.params import build, one
from holdfast.metrics.metric import Metric
from holdfast.tasks.task import Task


def metrics() -> dict[str, type[Metric]]:
    """Return every metric by name: those of ``holdfast/metrics`` and those that a user has written."""
    return discover("holdfast.metrics", Metric)


def metric_named(text: str) -> Metric:
    """Return the metric that a text names, whatever the task."""
    return build(one(text, "metric"), metrics(), "metric")


def fitting(task: Task) -> list[str]:
    """Return the names of the metrics that fit a task, its own default first."""
    known = [name for name, cls in metrics().items() if task.targets in cls.tasks]
    return sorted(known, key=lambda name: (name not in task.metrics[:1], name))


def read_metric(text: str | None, task: Task) -> Metric:
    """Return the metric that a text names; the task's default if there is none."""
    metric = metric_named(text or task.metrics[0])
    if task.targets not in metric.tasks:
        raise HoldfastError(f"{metric.name} does not fit {task.name}; use one of {', '.join(fitting(task))}")
    return metric
