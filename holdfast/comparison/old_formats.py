"""Comparisons of format 1, with the part names of today."""

from __future__ import annotations

import shlex
from dataclasses import replace

from holdfast.comparison.labels import entry_names, slug, unique_name
from holdfast.comparison.study_schema import FORMAT, StoredPlan, Study
from holdfast.method.renamed import modern


def modern_plan(plan: StoredPlan) -> StoredPlan:
    """Return a plan of format 1 in today's format."""
    return replace(plan, format=FORMAT, methods=[modern(text) for text in plan.methods])


def renamed_folders(plan: StoredPlan) -> dict[str, str]:
    """Return the folders of a plan of format 1 that have another name today: old name -> new name.

    >>> renamed_folders(StoredPlan(methods=["fedavg", "momentum(0.2)"], sweep={}, seeds=[0], settings={}, classes=[],
    ...                            counts=None))
    {'momentum-0.2': 'fedcm-0.2'}
    """
    old, new = (entry_names(methods, plan.sweep) for methods in (plan.methods, modern_plan(plan).methods))
    return {a.folder: b.folder for a, b in zip(old, new, strict=True) if a.folder != b.folder}


def modern_study(study: Study) -> Study:
    """Return a study of format 1 in today's format."""
    labels = {e.label: modern(e.method) + e.label.removeprefix(e.method) for e in study.entries}
    if all(old == new for old, new in labels.items()):
        return replace(study, format=FORMAT)
    entries, folders = [], list[str]()
    for e in study.entries:
        folders.append(unique_name(slug(labels[e.label]), folders))
        difference = e.difference and replace(e.difference, to=labels.get(e.difference.to, e.difference.to))
        runs = [f"{folders[-1]}/{run.rpartition('/')[2]}" for run in e.runs]
        entries.append(
            replace(e, label=labels[e.label], method=modern(e.method), runs=runs, difference=difference)
        )  # fmt: skip
    command = study.command and shlex.join(map(modern, shlex.split(study.command)))
    best = study.best_points and {modern(method): labels[label] for method, label in study.best_points.items()}
    return replace(study, format=FORMAT, command=command, entries=entries, best_points=best)
