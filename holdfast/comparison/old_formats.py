"""Comparisons of older formats, in the names of today."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from holdfast.comparison.labels import entry_names, slug, unique_name
from holdfast.comparison.plan_schema import StoredPlan
from holdfast.comparison.study_schema import FORMAT, Study
from holdfast.core.shell_words import command_line
from holdfast.method.renamed import modern

PARTS_RENAMED = 2  # the first format with the part names of today
ACCURACY_ALONE = 2  # the last format that knew no other metric


def modern_keys(value: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a file with the keys of today; what is damaged stays as it is."""
    if value.get("format") not in range(1, ACCURACY_ALONE + 1) or not isinstance(value.get("entries"), list):
        return value
    return value | {"entries": [_modern_entry(e) if isinstance(e, dict) else e for e in value["entries"]]}


def _modern_entry(entry: dict[str, Any]) -> dict[str, Any]:
    entry = {{"accuracy": "scores"}.get(key, key): value for key, value in entry.items()}
    if isinstance(entry.get("curves"), dict):
        names = {"test_accuracy": "test"}
        entry["curves"] = {names.get(key, key): value for key, value in entry["curves"].items()}
    return entry


def modern_plan(plan: StoredPlan) -> StoredPlan:
    """Return a plan of an older format in today's format."""
    methods = [modern(text) for text in plan.methods] if plan.format < PARTS_RENAMED else plan.methods
    return replace(plan, format=FORMAT, methods=methods)


def renamed_folders(plan: StoredPlan) -> dict[str, str]:
    """Return the folders of a plan of an older format that have another name today: old name -> new name.

    >>> renamed_folders(StoredPlan(format=1, methods=["fedavg", "momentum(0.2)"], sweep={}, seeds=[0], settings={},
    ...                            classes=[], counts=None))
    {'momentum-0.2': 'fedcm-0.2'}
    """
    old, new = (entry_names(methods, plan.sweep) for methods in (plan.methods, modern_plan(plan).methods))
    return {a.folder: b.folder for a, b in zip(old, new, strict=True) if a.folder != b.folder}


def modern_study(study: Study) -> Study:
    """Return a study of an older format in today's format."""
    if study.format >= PARTS_RENAMED:
        return replace(study, format=FORMAT)
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
    command = study.command and command_line(map(modern, shlex.split(study.command)))
    best = study.best_points and {modern(method): labels[label] for method, label in study.best_points.items()}
    return replace(study, format=FORMAT, command=command, entries=entries, best_points=best)
