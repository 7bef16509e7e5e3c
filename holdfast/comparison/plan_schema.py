"""What ``plan.json`` holds. The fields of these records are the keys of the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.comparison.study_schema import FORMAT, MetricFacts
from holdfast.core.typed_json import OMIT_NONE

PROCESS = "process"  # the executor that is usual


@dataclass(frozen=True)
class ExecutionOptions:
    """What may differ each time a comparison is resumed: scores to reach, parallel jobs, kept checkpoints, workers."""

    targets: list[float] | None = None
    jobs: int = 1
    light: bool = False
    executor: str = PROCESS


@dataclass(frozen=True)
class DataFacts:
    """What a result says about the data and the metric.

    Attributes:
        classes: The names of the classes, or of what samples are counted by in other tasks.
        counts: The samples per client and class of the first seed; None for large federations.
        names: Those of the clients, if they have any.
        measured: What everything goes by.
    """

    classes: list[str]
    counts: list[list[int]] | None
    names: list[str] | None = None
    measured: MetricFacts = field(default_factory=MetricFacts)


@dataclass(frozen=True, kw_only=True)
class StoredPlan:
    """``plan.json``: what makes a comparison this one and no other, and how it was last started."""

    format: int = FORMAT
    methods: list[str]
    sweep: dict[str, list[Any]]
    seeds: list[int]
    settings: dict[str, Any]
    how: ExecutionOptions = field(default_factory=ExecutionOptions)
    own: dict[str, str] | None = None
    classes: list[str]
    counts: list[list[int]] | None
    names: list[str] | None = field(default=None, metadata=OMIT_NONE)
    measured: MetricFacts = field(default_factory=MetricFacts)

    @property
    def facts(self) -> DataFacts:
        return DataFacts(self.classes, self.counts, self.names, self.measured)
