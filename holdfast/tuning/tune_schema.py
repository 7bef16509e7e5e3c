"""What ``tune_plan.json`` and ``tune.json`` hold. The fields of these records are the keys of the files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.comparison.study_schema import MetricFacts, PairedDifference, Spread
from holdfast.core.typed_json import OMIT_NONE
from holdfast.tuning.search_axis import SearchAxis

TUNE_FORMAT = 1  # of both files


@dataclass(frozen=True, kw_only=True)
class StoredTunePlan:
    """What makes a search this one and no other.

    Attributes:
        methods: The methods as the user wrote them.
        settings: The settings of all runs.
        spaces: What is searched, by method.
        trials: The trials of a method; a grid may have fewer.
        rungs: The rounds at which trials are compared.
        factor: Of so many trials at a rung, one continues.
        sampler: What proposes the trials.
        search_seed: The seed of the search and of all its runs.
        seeds: The fresh seeds on which the best settings are judged.
        own: What only Python can provide: data, model or parts, by name.
        measured: What everything goes by.
    """

    format: int = TUNE_FORMAT
    methods: list[str]
    settings: dict[str, Any]
    spaces: dict[str, list[SearchAxis]]
    trials: int
    rungs: list[int]
    factor: int
    sampler: str
    search_seed: int
    seeds: list[int]
    own: dict[str, str] = field(default_factory=dict)
    measured: MetricFacts


@dataclass(frozen=True)
class TrialRecord:
    """One trial.

    Attributes:
        number: Its number.
        values: What it tried, by name.
        scores: Its validation scores at the rungs that it reached; None where it diverged.
        rounds: The rounds that it ran.
    """

    number: int
    values: dict[str, Any]
    scores: dict[str, float | None]
    rounds: int

    @property
    def last_score(self) -> float | None:
        """The score at the last rung that it reached."""
        return list(self.scores.values())[-1] if self.scores else None

    @property
    def last_rung(self) -> int:
        """The last rung that it reached."""
        return max(map(int, self.scores), default=0)


@dataclass(frozen=True, kw_only=True)
class TunedEntry:
    """A method with its best setting.

    Attributes:
        method: The method as the user wrote it.
        tuned: The method with the best values of its parts; None if every trial diverged, like ``best``.
        best: The best values by name.
        trial: The number of the trial that had them.
        validation: Its score on the validation data after the last round.
        command: The command that trains with them.
        test: The test scores of the best setting on the fresh seeds.
        low: Lower end of the 95% interval of their mean; None with one seed, like ``high``.
        high: Upper end of the interval.
        difference: To the first method, seed by seed; None for the first.
        verdict: What the interval of the difference says.
        trials: All trials.
        diverged: How many of them diverged.
        rounds: The rounds that they ran together.
        seconds: The seconds that those took.
        importance: The share of each parameter in the variation of the scores at the first rung; None where it cannot
            be computed.
        edges: Best values at an edge of their range, as text.
        runs: The folders of the runs on fresh seeds.
    """

    method: str
    tuned: str | None = None
    best: dict[str, Any] | None = None
    trial: int | None = None
    validation: float | None = None
    command: str | None = None
    test: Spread = field(default_factory=lambda: Spread(None, None, []))
    low: float | None = None
    high: float | None = None
    difference: PairedDifference | None = None
    verdict: str = ""
    trials: list[TrialRecord]
    diverged: int
    rounds: int
    seconds: float
    importance: dict[str, float] | None = None
    edges: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class TuneStudy:
    """The result of a search.

    Attributes:
        device: Where the fresh runs were made; like ``date``, ``holdfast``, ``torch`` and ``commit``.
        command: The command that makes or resumes it; None where only Python can.
        plan: What was searched.
        entries: A method each.
    """

    format: int = TUNE_FORMAT
    device: str = ""
    date: str = ""
    holdfast: str = ""
    torch: str = ""
    commit: str = field(default="", metadata=OMIT_NONE)
    command: str | None
    plan: StoredTunePlan
    entries: list[TunedEntry]

    @property
    def goes_by(self) -> MetricFacts:
        """The metric."""
        return self.plan.measured
