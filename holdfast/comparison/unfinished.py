"""A comparison that is not finished: what its runs have found so far, and how many of them are missing."""

from __future__ import annotations

from typing import Any

from holdfast.comparison.result import collect, read_begun
from holdfast.comparison.stats import spread
from holdfast.comparison.study_folder import StudyFolder
from holdfast.comparison.task import Task
from holdfast.core.errors import HoldfastError

DONE = ("finished", "diverged")


def so_far(folder: StudyFolder) -> dict[str, Any]:
    """In the form of ``compare.json``; ``progress``, of the whole and of every entry, says how far it is."""
    plan = folder.plan()
    found = collect(plan, folder.path, folder.stored(), read=read_begun)
    if not any(entry["curves"]["rounds"] for entry in found["entries"]):
        raise HoldfastError(f"the comparison in {folder.path} has no evaluated rounds yet: there is nothing to report")
    tasks = plan.tasks(folder.path)
    states = [task.state() for task in tasks]
    for number, entry in enumerate(found["entries"]):
        own = [(task, state) for task, state in zip(tasks, states, strict=True) if task.row == number]
        entry["progress"] = progress(own, entry["accuracy"]["final"]["values"])
    done = sum(state in DONE for state in states)
    return found | {"progress": {"runs": len(tasks), "done": done, "begun": states.count("begun")}}


def progress(runs: list[tuple[Task, str]], finals: list[float | None]) -> dict[str, Any]:
    """Of one entry: runs and rounds, and the final accuracy of the runs that have one."""
    return {
        "runs": len(runs),
        "done": sum(state in DONE for _, state in runs),
        "rounds": sum(len(read_begun(task.folder, task.config.seed).history) for task, _ in runs),
        "of": sum(task.config.rounds for task, _ in runs),
        "final": spread([a for a in finals if a is not None]),
    }


def outgrown(plan: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether a result is of fewer seeds or methods than ``plan.json`` has by now."""
    methods = {e.get("method", e["label"]) for e in found["entries"]}
    return len(found["seeds"]) < len(plan["seeds"]) or methods < set(plan["methods"])
