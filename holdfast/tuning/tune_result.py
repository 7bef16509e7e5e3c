"""From trials and run folders to the figures of a search."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from holdfast.comparison.part_sweeps import text_with_values, value_to_text
from holdfast.comparison.plan import flags
from holdfast.comparison.result import made
from holdfast.comparison.stats import paired, spread, verdict
from holdfast.comparison.stored_run import StoredRun, read_run
from holdfast.comparison.study_schema import MetricFacts, Spread
from holdfast.tuning.importance import importance
from holdfast.tuning.search_axis import SearchAxis
from holdfast.tuning.trial_search import TrialSearch
from holdfast.tuning.tune_plan import TunePlan, config_at
from holdfast.tuning.tune_schema import TrialRecord, TunedEntry, TuneStudy


def tune_study(search: TrialSearch) -> TuneStudy:
    """Return the figures of a search whose best settings have run on fresh seeds."""
    plan, best = search.plan, search.best()
    finals = {text: final_runs(plan, text, search.folder) for text in best}
    scores = {text: spread([run.get("final") for run in runs]) for text, runs in finals.items()}
    entries = [tuned_entry(search, text, best.get(text), scores) for text in plan.spaces]
    known = [run for runs in finals.values() for run in runs]
    return TuneStudy(
        **made(known), command=plan.command(search.folder), plan=plan.stored(search.metric), entries=entries
    )


def tuned_entry(search: TrialSearch, method: str, best: int | None, scores: dict[str, Spread]) -> TunedEntry:
    """Return the figures of one method.

    Args:
        search: The search.
        method: The method.
        best: The number of its best trial; None if all diverged.
        scores: The test scores of every method on the fresh seeds.

    Returns:
        The figures.
    """
    plan, tried = search.plan, search.store.tried(method)
    runs = [search.run_of(method, n) for n in range(len(tried))]
    records = [record(n, search, method, run) for n, run in enumerate(runs)]
    spent = {
        "trials": records,
        "diverged": sum(bool(run.why) for run in runs),
        "rounds": sum(len(run.history) for run in runs),
        "seconds": sum(line["seconds"] for run in runs for line in run.history),
        "importance": importance(tried, plan.spaces[method], search.metric),
    }
    if best is None:
        return TunedEntry(method=method, **spent)
    point, test = tried[best].point, scores[method]
    first = next(iter(plan.spaces))
    compared = paired(test.values, scores[first].values, first) if method != first and first in scores else None
    low, high = mean_interval(test, search.metric)
    return TunedEntry(
        method=method,
        tuned=text_with_values(method, point),
        best=point,
        trial=best,
        validation=tried[best].scores[plan.rungs[-1]],
        command=command_of(plan, method, point),
        test=test,
        low=low,
        high=high,
        difference=compared,
        verdict=verdict(compared, search.metric.higher_is_better),
        edges=edge_texts(plan.spaces[method], point),
        runs=[str(folder.relative_to(search.folder)) for folder in final_folders(plan, method, search.folder)],
        **spent,
    )  # fmt: skip


def record(number: int, search: TrialSearch, method: str, run: StoredRun) -> TrialRecord:
    """Return one trial as the result has it."""
    tried = search.store.tried(method)[number]
    return TrialRecord(number, tried.point, {str(rung): s for rung, s in tried.scores.items()}, len(run.history))


def final_folders(plan: TunePlan, method: str, out: Path) -> list[Path]:
    """Return the run folders of a method's best setting, seed by seed."""
    entry = next(e for e in plan.entries if e.text == method)
    return [out / entry.folder / "best" / f"seed-{seed}" for seed in plan.finals.seeds]


def final_runs(plan: TunePlan, method: str, out: Path) -> list[StoredRun]:
    """Read the runs of a method's best setting."""
    folders = final_folders(plan, method, out)
    return [read_run(folder, seed) for folder, seed in zip(folders, plan.finals.seeds, strict=True)]


def mean_interval(scores: Spread, metric: MetricFacts) -> tuple[float | None, float | None]:
    """Return the 95% t interval of a mean over seeds: that of the difference to 0; shares stay from 0 to 1."""
    found = paired(scores.values, [0.0] * len(scores.values))
    if found is None or found.low is None or found.high is None:
        return None, None
    return (max(0.0, found.low), min(1.0, found.high)) if metric.percent else (found.low, found.high)


def edge_texts(axes: Sequence[SearchAxis], point: dict[str, object]) -> list[str]:
    """Name the best values at an edge of their range."""
    return [f"{a.name}={value_to_text(a.name, point[a.name])} of {a}" for a in axes if a.at_edge(point[a.name])]


def command_of(plan: TunePlan, method: str, point: dict[str, object]) -> str | None:
    """Return the command that trains with a setting on the first fresh seed; None if it needs objects from Python."""
    if plan.finals.from_python:
        return None
    config = config_at(plan.config, method, point).changed(seed=plan.finals.seeds[0])
    return shlex.join(["holdfast", "run", config.method, *flags(config, ("method",))])
