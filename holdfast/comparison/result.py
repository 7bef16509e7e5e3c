"""From run folders to a study: the content of ``compare.json``, for a finished comparison or as far as it is."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from holdfast.comparison.class_checks import checked_classes
from holdfast.comparison.client_figures import client_figures
from holdfast.comparison.labels import EntryName
from holdfast.comparison.plan import Plan
from holdfast.comparison.plan_schema import DataFacts
from holdfast.comparison.stats import ACCURACY, paired, reach, spread, usual_targets, verdict
from holdfast.comparison.stored_run import StoredRun, read_run
from holdfast.comparison.study_schema import (
    ClassAccuracy,
    ClientCounts,
    Curves,
    DivergedRun,
    DriftCurve,
    ExplodedRun,
    Floor,
    MetricFacts,
    Scores,
    Spread,
    Study,
    StudyEntry,
    TargetCost,
)
from holdfast.runs.explosion import exploded
from holdfast.runs.provenance import MADE
from holdfast.tasks.task_names import tasks


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
    metric, targets = facts.measured, plan.execution.targets
    if targets is None:
        first = [row for row in rows.values() if row.method == plan.methods[0][0]]  # at every point of a sweep
        targets = targets_of(first, metric)
    entries = []
    for entry in plan.entries:
        reference = plan.reference(entry)
        compared_with = None if reference == entry else rows[reference.folder]
        entries.append(study_entry(rows[entry.folder], compared_with, targets, metric))
    runs = [run for row in rows.values() for run in row.runs.values()]
    study = Study(
        **made(runs),
        **measured(runs, metric),
        command=plan.command(out),
        own=plan.from_python,
        settings=plan.settings(),
        defaults=with_engine(plan.defaults(), runs),
        sweep=plan.swept(),
        seeds=list(plan.seeds),
        targets=list(targets),
        classes=facts.classes,
        split=ClientCounts(facts.counts or None, facts.names),
        entries=entries,
        best_points=best_points(entries, metric) if plan.sweep else None,
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


def with_engine(defaults: dict[str, Any], runs: Sequence[StoredRun]) -> dict[str, Any]:
    """Say which engine the runs got where they left it open, as far as they say it."""
    engines = sorted({engine for run in runs if (engine := run.get("engine"))})
    return defaults | {"engine": " and ".join(engines)} if engines and "engine" in defaults else defaults


def measured(runs: Sequence[StoredRun], metric: MetricFacts) -> dict[str, Any]:
    """Return what a study says about its metric: what best rounds were chosen on, and the floor."""
    chosen = {run.get("chosen_on") or "test" for run in runs if run.summary}
    floors = [value for run in runs if (value := (run.get("floor") or {}).get(metric.metric)) is not None]
    return {
        **vars(metric),
        "chosen_on": "validation" if chosen == {"validation"} else "test",
        "floor": Floor(floor_name(metric.task), statistics.fmean(floors)) if floors else None,
    }


def floor_name(task: str) -> str:
    """Return what the floor of a task predicts; a task of the user's may not be known here."""
    known = tasks()
    return known[task].floor if task in known else "floor"


def targets_of(rows: Sequence[EntryRuns], metric: MetricFacts) -> list[float]:
    """Return the usual targets, from the point of the first method that has the best score."""
    scored = {best: row for row in rows if (best := spread(row.figures("best")).mean) is not None}
    best = metric.best(scored)
    if best is None:
        return []
    starts = [next((s for s in scores if s is not None), None) for scores in curves(runs_of(scored[best]), metric).test]
    return usual_targets(best, metric, spread(starts).mean)


def runs_of(row: EntryRuns) -> list[StoredRun]:
    return list(row.runs.values())


def study_entry(
    row: EntryRuns, reference: EntryRuns | None, targets: Sequence[float], metric: MetricFacts
) -> StudyEntry:
    """Summarize an entry over its seeds.

    Args:
        row: The entry.
        reference: The entry that it is compared with; None for a reference itself.
        targets: Scores to reach.
        metric: What is scored.

    Returns:
        Its statistics, curves and drift.
    """
    runs = runs_of(row)
    final = row.figures("final")
    difference = paired(final, reference.figures("final"), reference.label) if reference else None
    personal = row.figures("personal_accuracy")
    return StudyEntry(
        label=row.label,
        method=row.method,
        settings=row.settings,
        runs=list(row.runs),
        scores=Scores(
            **{kind: spread(row.figures(kind)) for kind in ("final", "best", "last5")},
            validation=validation(runs, metric),
        ),
        difference=difference,
        verdict=verdict(difference, metric.higher_is_better),
        diverged=[DivergedRun(run.seed, run.why) for run in runs if run.why],
        exploded=explosions(runs),
        leaks_test_data=any(row.figures("leaks_test_data")),
        targets=[cost_to_reach(runs, target, metric) for target in targets],
        kappa=spread(row.figures("kappa")) if metric.metric == ACCURACY.metric else None,
        rho=spread(row.figures("rho")) if metric.metric == ACCURACY.metric else None,
        seconds=spread(row.figures("seconds")),
        bytes=spread([run.traffic for run in runs]),
        virtual=spread(row.figures("virtual_seconds")) if any(map(clocked, runs)) else None,
        personal=spread(personal) if any(p is not None for p in personal) else None,
        by_class=by_class(row.figures("accuracy_by_class")) if metric.task == ACCURACY.task else None,
        curves=curves(runs, metric),
        drift=drift(runs),
        clients=client_figures(runs, metric.higher_is_better),
        epsilon=max((e for e in row.figures("epsilon") if e is not None), default=None),
    )


def explosions(runs: Sequence[StoredRun]) -> list[ExplodedRun]:
    """Return the runs that exploded; those that diverged are listed as such.

    A run without a summary, or with one of an older version, is judged by its history alone.
    """
    rounds = {run.seed: run.get("exploded_round") or exploded(losses_of(run)) for run in runs if not run.why}
    return [ExplodedRun(seed, round) for seed, round in rounds.items() if round is not None]


def losses_of(run: StoredRun) -> list[float | None]:
    """Return the training losses of the rounds in which somebody's work arrived."""
    return [line["train_loss"] for line in run.history if len(line["cohort"]) > len(line.get("late") or ())]


def validation(runs: Sequence[StoredRun], metric: MetricFacts) -> Spread | None:
    """Return the last score of every finished run on validation data; None without such data."""
    lasts = [[line["validation"].get(metric.metric) for line in run.history if line["validation"]] for run in runs]
    known = [scores[-1] if scores and run.summary else None for run, scores in zip(runs, lasts, strict=True)]
    return spread(known) if any(lasts) else None


def cost_to_reach(runs: Sequence[StoredRun], target: float, metric: MetricFacts) -> TargetCost:
    rounds, seconds, traffic = zip(*(reach(run.history, target, metric) for run in runs), strict=True)
    shown = [None if t is None else virtual_time(run.history).get(t) for run, t in zip(runs, rounds, strict=True)]
    return TargetCost(target, list(rounds), list(seconds), list(traffic), shown if any(map(clocked, runs)) else None)


def clocked(run: StoredRun) -> bool:
    """Tell whether a run has a virtual clock."""
    return any(line.get("virtual_seconds") is not None for line in run.history)


def virtual_time(history: Sequence[dict[str, Any]]) -> dict[int, float]:
    """Return what the virtual clock showed after each round; nothing without client speeds."""
    taken = [(line["round"], line.get("virtual_seconds")) for line in history]
    known = [(t, seconds) for t, seconds in taken if seconds is not None]
    return dict(zip((t for t, _ in known), accumulate(seconds for _, seconds in known), strict=True))


def by_class(values: list[list[float | None] | None]) -> ClassAccuracy:
    known = [v for v in values if v is not None]
    if len(known) < len(values):
        return ClassAccuracy(None, values)
    return ClassAccuracy([spread(column).mean for column in zip(*known, strict=True)], values)


def curves(runs: Sequence[StoredRun], metric: MetricFacts) -> Curves:
    """Return the scores at evaluated rounds; the curve of a run that diverged or is not finished ends in None."""
    rounds = sorted({line["round"] for run in runs for line in run.history if line["test"]})

    def along_rounds(kind: str, name: str) -> list[list[float | None]]:
        return [along(rounds, {line["round"]: line[kind].get(name) for line in run.history}) for run in runs]

    losses = [along(rounds, {line["round"]: line["train_loss"] for line in run.history}) for run in runs]
    judged = any(line["validation"] for run in runs for line in run.history)
    return Curves(
        rounds,
        along_rounds("test", metric.metric),
        along_rounds("test", "loss"),
        losses,
        along_rounds("validation", metric.metric) if judged else [],
        [along(rounds, dict(virtual_time(run.history))) for run in runs] if any(map(clocked, runs)) else None,
    )


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


def best_points(entries: Sequence[StudyEntry], metric: MetricFacts) -> dict[str, str]:
    """Return, for every method, the label of the point with the best mean final score that did not diverge.

    The score is that on validation data if there are any, else that on the test data.
    """
    best: dict[str, tuple[float, str]] = {}
    for entry in entries:
        mean = entry.scores.chosen_by.mean
        if mean is not None and (entry.method not in best or metric.better(mean, best[entry.method][0])):
            best[entry.method] = (mean, entry.label)
    return {method: label for method, (_, label) in best.items()}
