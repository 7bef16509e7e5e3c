"""What ``compare.json`` holds. The fields of these records are the keys of the file.

Lists over seeds follow ``Study.seeds``. A value is None where a run has none: it diverged, or is not finished.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.typed_json import OMIT_NONE

FACTORY = "model factory"  # the entry of ``own`` for a function or class from Python that makes the model
# Of both files. Format 1 has older part names, and its plan.json has no number. Formats 1 and 2 know accuracy alone:
# ``accuracy`` in place of ``scores``, ``test_accuracy`` in place of ``test``.
FORMAT = 3
ACRONYMS = ("rmse", "mae", "r2", "auroc", "f1")  # words that are written in capitals


@dataclass(frozen=True)
class MetricFacts:
    """What everything in a comparison goes by.

    Attributes:
        metric: The name of the metric.
        higher_is_better: Its direction.
        percent: Whether it is shown as a percentage.
        task: The name of the task.
    """

    metric: str = "accuracy"
    higher_is_better: bool = True
    percent: bool = True
    task: str = "classification"

    def better(self, score: float, than: float) -> bool:
        """Tell whether a score is better than another one."""
        return score > than if self.higher_is_better else score < than

    def best(self, scores: Iterable[float]) -> float | None:
        """Return the best of some scores; None if there are none."""
        return (max if self.higher_is_better else min)(scores, default=None)

    @property
    def spoken(self) -> str:
        """The metric in a sentence.

        >>> MetricFacts("balanced_accuracy").spoken, MetricFacts("macro_f1").spoken, MetricFacts("rmse").spoken
        ('balanced accuracy', 'macro F1', 'RMSE')
        """
        words = [self.metric] if ":" in self.metric else re.split("[-_]", self.metric)  # a function in a file
        return " ".join(word.upper() if word in ACRONYMS else word for word in words)


@dataclass(frozen=True)
class Spread:
    """A figure over seeds.

    Attributes:
        mean: The mean; None unless every seed has a value.
        std: The standard deviation (n - 1); None as well for a single seed.
        values: The figure of every seed.
    """

    mean: float | None
    std: float | None
    values: list[float | None]


@dataclass(frozen=True)
class Scores:
    """The metric on the test data.

    Attributes:
        final: After the last round.
        best: In the best round, which ``Study.chosen_on`` chose.
        last5: The mean of the last five evaluated rounds.
        validation: On the validation data after the last round; None without validation data.
    """

    final: Spread
    best: Spread
    last5: Spread
    validation: Spread | None = field(default=None, metadata=OMIT_NONE)

    @property
    def chosen_by(self) -> Spread:
        """What the best point of a sweep is chosen by: validation data if there are any, else test data."""
        return self.validation or self.final


@dataclass(frozen=True)
class Floor:
    """The score of a prediction that ignores the inputs.

    Attributes:
        name: That prediction, such as ``majority class`` or ``mean``.
        value: Its score on the test data.
    """

    name: str
    value: float


@dataclass(frozen=True)
class PairedDifference:
    """The mean difference to the reference, paired by seed.

    Attributes:
        of: The score that is compared.
        to: The label of the reference.
        mean: The mean over seeds of entry - reference.
        low: Lower end of the 95% interval; None with one seed or without scipy, like ``high`` and ``p``.
        high: Upper end of the interval.
        p: The p-value of the paired t test.
        n: The number of seeds.
    """

    of: str
    to: str
    mean: float
    low: float | None
    high: float | None
    p: float | None
    n: int


@dataclass(frozen=True)
class DivergedRun:
    """A seed whose run diverged, and the reason."""

    seed: int
    why: str


@dataclass(frozen=True)
class ExplodedRun:
    """A seed whose training loss exploded, and the round by which it had."""

    seed: int
    round: int


@dataclass(frozen=True)
class TargetCost:
    """Rounds, seconds and bytes, seed by seed, until ``target`` was reached; None where it never was.

    Seconds leave the warm-up of the first round out (see ``stats.without_warm_up``). ``virtual`` is the time on the
    virtual clock; None without client speeds.
    """

    target: float
    rounds: list[int | None]
    seconds: list[float | None]
    bytes: list[float | None]
    virtual: list[float | None] | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class ClassAccuracy:
    """Final accuracy by class: the mean over seeds, and a list of classes per seed."""

    mean: list[float | None] | None
    values: list[list[float | None] | None]


@dataclass(frozen=True)
class Curves:
    """The metric and the losses over the evaluated rounds, one curve per seed; ``validation`` is empty without data.

    ``virtual`` is what the virtual clock showed after these rounds; None without client speeds.
    """

    rounds: list[int]
    test: list[list[float | None]]
    test_loss: list[list[float | None]]
    train_loss: list[list[float | None]]
    validation: list[list[float | None]] = field(default_factory=list)
    virtual: list[list[float | None]] | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class DriftCurve:
    """One measure of client drift over the rounds in which it was recorded, one curve per seed."""

    rounds: list[int]
    values: list[list[float | None]]


@dataclass(frozen=True)
class NamedScore:
    """The final score of a client on its own test samples, and that of its fine-tuned copy.

    There is none where the metric is not defined, such as the AUROC of one class.
    """

    name: str
    score: float | None
    samples: int
    personal: float | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class OverClients:
    """Mean, worst tenth and variance over clients at the end of the runs."""

    mean: Spread
    worst_tenth: Spread
    variance: Spread | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class ClientFigures:
    """Scores on clients' own test samples.

    Attributes:
        rounds: The evaluated rounds.
        mean: The mean over clients in these rounds, one curve per seed.
        worst_tenth: The mean of the worst tenth, likewise.
        final_mean: The mean over clients at the end.
        final_worst: The mean of the worst tenth at the end.
        final_variance: The variance over clients at the end; None in files of an earlier version.
        clients: The clients of the first seed, the worst first, then those without a score; empty for large
            federations.
        scores: Their scores; of very large federations a selection from worst to best.
        copies: The same figures of the clients' fine-tuned copies; None without copies.
    """

    rounds: list[int]
    mean: list[list[float | None]]
    worst_tenth: list[list[float | None]]
    final_mean: Spread
    final_worst: Spread
    clients: list[NamedScore] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    final_variance: Spread | None = field(default=None, metadata=OMIT_NONE)
    copies: OverClients | None = field(default=None, metadata=OMIT_NONE)

    @property
    def final(self) -> OverClients:
        """The figures of the model at the end."""
        return OverClients(self.final_mean, self.final_worst, self.final_variance)


@dataclass(frozen=True)
class EntryProgress:
    """How far an entry of an unfinished comparison is.

    Attributes:
        runs: Number of its runs.
        done: How many of them are finished or diverged.
        rounds: Rounds trained so far in all of them.
        of: Rounds to train in all of them.
        final: Final score of the finished runs.
    """

    runs: int
    done: int
    rounds: int
    of: int
    final: Spread


@dataclass(frozen=True)
class StudyProgress:
    """How many runs an unfinished comparison has, and how many of them are done or started."""

    runs: int
    done: int
    started: int


@dataclass(frozen=True, kw_only=True)
class StudyEntry:
    """One row of a comparison: a method at one point of the sweep, over all seeds.

    Attributes:
        label: The method, and the point of the sweep.
        method: The method as the user wrote it.
        settings: The point of the sweep.
        runs: The run folders, relative to that of the comparison.
        difference: To the reference; None for the reference itself and where a run diverged.
        verdict: ``better``, ``worse``, ``no difference seen``, or empty without an interval.
        exploded: The runs that ended normally but whose training loss exploded.
        leaks_test_data: Whether training used test data, which makes the scores meaningless.
        kappa: Final accuracy times 10 000 per second; None for other metrics.
        rho: Final accuracy times 10 000 per megabyte; None for other metrics.
        seconds: Wall-clock time of all rounds.
        bytes: Upload and download of all rounds.
        virtual: Seconds of all rounds on the virtual clock; None without client speeds.
        personal: Accuracy of the clients' own copies, where they were tuned.
        by_class: Accuracy by class; None for a task without classes.
        clients: Scores on clients' own test samples, with ``--client-eval``.
        epsilon: What the models reveal about a client, under differential privacy; the largest of all seeds.
        progress: Only while the comparison is not finished; never written to ``compare.json``.
    """

    label: str
    method: str
    settings: dict[str, Any]
    runs: list[str]
    scores: Scores
    difference: PairedDifference | None
    verdict: str = ""
    diverged: list[DivergedRun] = field(default_factory=list)
    exploded: list[ExplodedRun] = field(default_factory=list)
    leaks_test_data: bool = False
    targets: list[TargetCost]
    kappa: Spread | None = field(default=None, metadata=OMIT_NONE)
    rho: Spread | None = field(default=None, metadata=OMIT_NONE)
    seconds: Spread
    bytes: Spread
    virtual: Spread | None = field(default=None, metadata=OMIT_NONE)
    personal: Spread | None = field(default=None, metadata=OMIT_NONE)
    by_class: ClassAccuracy | None = field(default=None, metadata=OMIT_NONE)
    curves: Curves
    drift: dict[str, DriftCurve] = field(default_factory=dict)
    clients: ClientFigures | None = field(default=None, metadata=OMIT_NONE)
    epsilon: float | None = field(default=None, metadata=OMIT_NONE)
    progress: EntryProgress | None = field(default=None, metadata=OMIT_NONE)

    @property
    def complete(self) -> bool:
        """Whether all runs are done. Until then an entry has curves but no results."""
        return self.progress is None or self.progress.done == self.progress.runs


@dataclass(frozen=True)
class ClientCounts:
    """Samples per client and class, and the clients' names if they have any; None for large federations.

    Attributes:
        counts: The samples.
        names: The names.
        left_out: Which clients' updates a single run left out, and why, a sentence each; never written.
    """

    counts: list[list[int]] | None = field(default=None, metadata=OMIT_NONE)
    names: list[str] | None = field(default=None, metadata=OMIT_NONE)
    left_out: list[str] | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True, kw_only=True)
class Study:
    """A comparison: its setup and its results. A single run is a study with one entry and one seed.

    Attributes:
        device: Where the runs were made; like ``date``, ``holdfast``, ``torch`` and ``commit`` taken from the runs
            themselves, and empty where they do not say.
        command: The command that makes or resumes it; None where only Python can.
        own: What only Python can provide: data, model or parts, by name.
        settings: What all runs share: settings that differ from their defaults, and those every table should name.
        defaults: Further settings that all runs share and that a page shows, although they are the defaults.
        metric: What the comparison goes by; with its direction, whether it is a percentage, and the task.
        chosen_on: What best rounds were chosen by: ``validation`` or ``test``.
        floor: The score of a prediction that ignores the inputs, if the runs say it.
        sweep: The settings that are swept, with their values.
        targets: Scores to reach.
        classes: Names of the classes, or of what samples are counted by in other tasks, such as ranges of a target.
        split: How the data of the first seed is split.
        best_points: Method -> label of its best point; only in a sweep.
        progress: Only while the comparison is not finished; never written to ``compare.json``.
        config: The config of a single run as TOML; never written.
        rounds_done: Rounds of a single run so far; never written.
        stopped_early: Whether validation data ended a single run; never written.
    """

    format: int = FORMAT
    device: str = ""
    date: str = ""
    holdfast: str = ""
    torch: str = ""
    commit: str = ""
    command: str | None
    own: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any]
    defaults: dict[str, Any] = field(default_factory=dict)
    metric: str = MetricFacts.metric
    higher_is_better: bool = MetricFacts.higher_is_better
    percent: bool = MetricFacts.percent
    task: str = MetricFacts.task
    chosen_on: str = "test"
    floor: Floor | None = field(default=None, metadata=OMIT_NONE)
    sweep: dict[str, list[Any]] = field(default_factory=dict)
    seeds: list[int]
    targets: list[float]
    classes: list[str]
    split: ClientCounts = field(default_factory=ClientCounts)
    entries: list[StudyEntry]
    best_points: dict[str, str] | None = field(default=None, metadata=OMIT_NONE)
    progress: StudyProgress | None = field(default=None, metadata=OMIT_NONE)
    config: str | None = field(default=None, metadata=OMIT_NONE)
    rounds_done: int | None = field(default=None, metadata=OMIT_NONE)
    stopped_early: bool | None = field(default=None, metadata=OMIT_NONE)

    @property
    def methods(self) -> list[str]:
        """The methods, each once."""
        return list(dict.fromkeys(entry.method for entry in self.entries))

    @property
    def goes_by(self) -> MetricFacts:
        """The metric."""
        return MetricFacts(self.metric, self.higher_is_better, self.percent, self.task)
