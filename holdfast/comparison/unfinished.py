"""A comparison that is not finished: what its runs show so far, and how many of them are missing."""

from __future__ import annotations

from dataclasses import replace

from holdfast.comparison.plan_schema import StoredPlan
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.result import collect
from holdfast.comparison.stats import spread
from holdfast.comparison.stored_run import read_started
from holdfast.comparison.study_folder import StudyFolder
from holdfast.comparison.study_schema import EntryProgress, Study, StudyProgress
from holdfast.core.errors import HoldfastError

DONE = ("finished", "diverged")


def study_so_far(folder: StudyFolder) -> Study:
    """Collect what there is; ``progress``, of the study and of every entry, says how far it is."""
    plan = folder.plan()
    study = collect(plan, folder.path, folder.stored().facts, read=read_started)
    if not any(entry.curves.rounds for entry in study.entries):
        raise HoldfastError(
            f"the comparison in {folder.path} has no evaluated rounds yet: report it after its first round"
        )
    tasks = plan.tasks(folder.path)
    states = [task.state() for task in tasks]
    entries = []
    for number, entry in enumerate(study.entries):
        runs = [(task, state) for task, state in zip(tasks, states, strict=True) if task.row == number]
        entries.append(replace(entry, progress=progress(runs, entry.scores.final.values)))
    done = sum(state in DONE for state in states)
    return replace(study, entries=entries, progress=StudyProgress(len(tasks), done, states.count("started")))


def progress(runs: list[tuple[PlannedRun, str]], finals: list[float | None]) -> EntryProgress:
    """Count runs and rounds of one entry, with the final score of the runs that have one."""
    return EntryProgress(
        runs=len(runs),
        done=sum(state in DONE for _, state in runs),
        rounds=sum(len(read_started(task.folder, task.config.seed).history) for task, _ in runs),
        of=sum(task.config.rounds for task, _ in runs),
        final=spread([a for a in finals if a is not None]),
    )


def outgrown(plan: StoredPlan, study: Study) -> bool:
    """Tell whether a result has fewer seeds or methods than the plan has by now."""
    return len(study.seeds) < len(plan.seeds) or set(study.methods) < set(plan.methods)
