"""From run folders to a study: the content of ``compare.json``, for a finished comparison or as far as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.comparison.class_checks import checked_classes
from holdfast.comparison.labels import EntryName
from holdfast.comparison.plan import Plan
from holdfast.comparison.stats import paired, reach, spread, usual_targets, verdict
from holdfast.comparison.stored_run import StoredRun, read_run
from holdfast.comparison.study_schema import (
    AccuracyScores,
    ClassAccuracy,
    ClientCounts,
    Curves,
    DataFacts,
    DivergedRun,
    DriftCurve,
    ExplodedRun,
    Study,
    StudyEntry,
    TargetCost,
)
from holdfast.runs.explosion import exploded
from holdfast.runs.provenance import MADE


@dataclass(frozen=True)
class EntryRuns:
    """An entry with its runs, in the order of the seeds.

    Attributes:
        label: The label of the entry.
        method: The method as the user wrote it.
        settings: The point of the sweep.
        runs: Folder, relative to that of the comparison -> the run in it.
    """

    label: str
    method: str
    settings: dict[str, Any]
    runs: dict[str, StoredRun]

    def figures(self, name: str) -> list[Any]:
        """Return a figure of every run's summary."""
        return [run.get(name) for run in self.runs.values()]


def collect(plan: Plan, out: Path, facts: DataFacts, read: Callable[[Path, int], StoredRun] = read_run) -> Study:
    """Put the results of a comparison together.

    Args:
        plan: What was compared.
        out: The folder of the comparison.
        facts: What is known about the data.
        read: Reads a run. With ``read_started`` the comparison need not be finished; entries have no means until all
            their runs are.

    Returns:
        The study.
    """
    rows = {entry.folder: read_entry(entry, plan.seeds, out, read) for entry in plan.entries}
    targets = plan.execution.targets
    if targets is None:
        first = [row for row in rows.values() if row.method == plan.methods[0][0]]  # at every point of a sweep
        best = [spread(row.figures("best")).mean for row in first]
        targets = usual_targets(max((b for b in best if b is not None), default=None))
    entries = []
    for entry in plan.entries:
        reference = plan.reference(entry)
        compared_with = None if reference == entry else rows[reference.folder]
        entries.append(study_entry(rows[entry.folder], compared_with, targets))
    study = Study(
        **made(run for row in rows.values() for run in row.runs.values()),
        command=plan.command(out),
        own=plan.from_python,
        settings=plan.settings(),
        sweep={name: list(values) for name, values in plan.sweep.items()},
        seeds=list(plan.seeds),
        targets=list(targets),
        classes=facts.classes,
        split=ClientCounts(facts.counts or None),
        entries=entries,
        best_points=best_points(entries) if plan.sweep else None,
    )
    return checked_classes(study, out / "plan.json", "start over with --overwrite")


def read_entry(entry: EntryName, seeds: Sequence[int], out: Path, read: Callable[[Path, int], StoredRun]) -> EntryRuns:
    """Read the runs of an entry."""
    runs = {f"{entry.folder}/seed-{s}": read(out / entry.folder / f"seed-{s}", s) for s in seeds}
    return EntryRuns(entry.label, entry.text, entry.settings, runs)


def made(runs: Iterable[StoredRun]) -> dict[str, Any]:
    """Say where, when and with what the runs were made, as far as they say it; empty where none of them does."""
    known = [run.made for run in runs]
    return {name: ", ".join(sorted({one[name] for one in known if name in one})) for name in MADE}


def study_entry(row: EntryRuns, reference: EntryRuns | None, targets: Sequence[float]) -> StudyEntry:
    """Summarize an entry over its seeds.

    Args:
        row: The entry.
        reference: The entry that it is compared with; None for a reference itself.
        targets: Accuracies to reach.

    Returns:
        Its statistics, curves and drift.
    """
    runs = list(row.runs.values())
    final = row.figures("final")
    difference = paired(final, reference.figures("final"), reference.label) if reference else None
    personal = row.figures("personal_accuracy")
    return StudyEntry(
        label=row.label,
        method=row.method,
        settings=row.settings,
        runs=list(row.runs),
        accuracy=AccuracyScores(*(spread(row.figures(kind)) for kind in ("final", "best", "last5"))),
        difference=difference,
        verdict=verdict(difference),
        diverged=[DivergedRun(run.seed, run.why) for run in runs if run.why],
        exploded=explosions(runs),
        leaks_test_data=any(row.figures("leaks_test_data")),
        targets=[cost_to_reach(runs, target) for target in targets],
        kappa=spread(row.figures("kappa")),
        rho=spread(row.figures("rho")),
        seconds=spread(row.figures("seconds")),
        bytes=spread([run.traffic for run in runs]),
        personal=spread(personal) if any(p is not None for p in personal) else None,
        by_class=by_class(row.figures("accuracy_by_class")),
        curves=curves(runs),
        drift=drift(runs),
    )


def explosions(runs: Sequence[StoredRun]) -> list[ExplodedRun]:
    """Return the runs that exploded; those that diverged are listed as such.

    A run without a summary, or with one of an older version, is judged by its history alone.
    """
    rounds = {
        run.seed: run.get("exploded_round") or exploded([line["train_loss"] for line in run.history])
        for run in runs
        if not run.why
    }
    return [ExplodedRun(seed, round) for seed, round in rounds.items() if round is not None]


def cost_to_reach(runs: Sequence[StoredRun], target: float) -> TargetCost:
    rounds, seconds, traffic = zip(*(reach(run.history, target) for run in runs), strict=True)
    return TargetCost(target, list(rounds), list(seconds), list(traffic))


def by_class(values: list[list[float | None] | None]) -> ClassAccuracy:
    known = [v for v in values if v is not None]
    if len(known) < len(values):
        return ClassAccuracy(None, values)
    return ClassAccuracy([spread(column).mean for column in zip(*known, strict=True)], values)


def curves(runs: Sequence[StoredRun]) -> Curves:
    """Return the scores at evaluated rounds; the curve of a run that diverged or is not finished ends in None."""
    rounds = sorted({line["round"] for run in runs for line in run.history if line["test"]})

    def along_rounds(name: str) -> list[list[float | None]]:
        return [along(rounds, {line["round"]: line["test"].get(name) for line in run.history}) for run in runs]

    losses = [along(rounds, {line["round"]: line["train_loss"] for line in run.history}) for run in runs]
    return Curves(rounds, along_rounds("accuracy"), along_rounds("loss"), losses)


def drift(runs: Sequence[StoredRun]) -> dict[str, DriftCurve]:
    """Return every drift measure that was recorded, over the rounds in which it was."""
    recorded = [{line["round"]: line.get("drift") or {} for line in run.history} for run in runs]
    names = sorted({name for run in recorded for figures in run.values() for name in figures})
    measures: dict[str, DriftCurve] = {}
    for name in names:
        rounds = sorted({t for run in recorded for t, figures in run.items() if name in figures})
        values = [along(rounds, {t: figures.get(name) for t, figures in run.items()}) for run in recorded]
        measures[name] = DriftCurve(rounds, values)
    return measures


def along(rounds: Sequence[int], known: dict[int, float | None]) -> list[float | None]:
    return [known.get(t) for t in rounds]


def best_points(entries: Sequence[StudyEntry]) -> dict[str, str]:
    """Return, for every method, the label of the point with the highest mean final accuracy that did not diverge."""
    best: dict[str, tuple[float, str]] = {}
    for entry in entries:
        mean = entry.accuracy.final.mean
        if mean is not None and (entry.method not in best or mean > best[entry.method][0]):
            best[entry.method] = (mean, entry.label)
    return {method: label for method, (_, label) in best.items()}
