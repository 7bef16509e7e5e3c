"""``holdfast.compare``: which method works on this data?"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from holdfast.comparison.export import as_csv, latex, markdown
from holdfast.comparison.observers import Observer
from holdfast.comparison.plan import ExecutionOptions, Plan, make_plan, slug
from holdfast.comparison.result import collect
from holdfast.comparison.runner import FolderLock, run_all
from holdfast.comparison.study_folder import RESULT, TABLES, StudyFolder
from holdfast.comparison.task import Executor
from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_atomically
from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation
from holdfast.method.method import Method
from holdfast.method.part import Part
from holdfast.runs.folder import new_folder

MOST_CLIENTS = 200  # above, compare.json leaves out the samples per client and class


@dataclass(frozen=True)
class Comparison:
    """What a comparison found: ``record`` is what ``compare.json`` holds; empty when it was stopped before its end."""

    plan: Plan
    folder: Path
    record: dict[str, Any]

    @property
    def finished(self) -> bool:
        return bool(self.record)

    @property
    def entries(self) -> list[dict[str, Any]]:
        """A record per method and sweep point; the first is what the others are compared with."""
        found: list[dict[str, Any]] = self.record.get("entries", [])
        return found

    def markdown(self) -> str:
        return markdown(self.record)

    def __repr__(self) -> str:
        state = "finished" if self.finished else "not finished"
        return f"Comparison({len(self.plan.entries)} entries, {len(self.plan.seeds)} seeds, {state}, in {self.folder})"


def compare(
    methods: Sequence[str | Part | Method],
    data: str | DataSet | None = None,
    model: str | nn.Module | None = None,
    *,
    seeds: int = 5,
    first_seed: int = 0,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    targets: Sequence[float] | None = None,
    jobs: int = 1,
    out: str | Path | None = None,
    overwrite: bool = False,
    light: bool = False,
    watch: Observer | None = None,
    stop: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> Comparison:
    """Run every method on the same federations, cohorts and batches, and compare them with the first, seed by seed.

    ``settings`` are the fields of ``Config``; ``sweep`` maps some of them to several values. The runs are kept in
    ``out``, by default a new folder in ``runs``; called again with the same ``out`` it does only what is missing.
    ``jobs`` processes share the work; ``light`` deletes the checkpoints of finished runs. ``stop`` is asked after
    every round.
    """
    check_numbers(jobs, targets)
    how = ExecutionOptions(None if targets is None else tuple(map(float, targets)), jobs, light)
    if isinstance(data, Federation):
        raise HoldfastError("compare deals a federation per seed: give it the data set, and split and clients")
    own = names_of_own(data, model)
    named = {name: value for name, value in (("data", data), ("model", model)) if isinstance(value, str)} | own
    plan = make_plan(methods, settings | named, seeds, first_seed, sweep, how, own)
    bench = Executor(data if isinstance(data, DataSet) else None, model if isinstance(model, nn.Module) else None)
    path = Path(out) if out is not None else new_folder(Path("runs"), "compare", slug(plan.config.data))
    folder = StudyFolder(path)
    folder.check(plan, overwrite)
    tasks = plan.tasks(path)
    for task in tasks[: len(plan.entries)]:
        bench.check(task)
    facts = facts_of(bench.federation(tasks[0].config))
    with FolderLock(path):
        if overwrite:
            folder.clear()
        folder.write_plan(plan, facts)
        done = run_all(tasks, bench, jobs, watch, stop, light)
        record = collect(plan, path, facts) if done else {}
        if done:
            write(path, record)
    return Comparison(plan, path, record)


def tabulate(path: str | Path, targets: Sequence[float] | None = None) -> Comparison:
    """Make result and tables of a comparison again from its finished runs; nothing is run.

    Without ``targets`` they are those that the comparison was asked for.
    """
    check_numbers(1, targets)
    folder = StudyFolder(Path(path))
    plan = folder.plan()
    if targets is not None:
        plan = replace(plan, how=replace(plan.how, targets=targets))
    record = collect(plan, folder.path, folder.stored())
    write(folder.path, record)
    return Comparison(plan, folder.path, record)


def write(path: Path, record: dict[str, Any]) -> None:
    write_atomically(path / RESULT, json.dumps(record, allow_nan=False) + "\n")
    for name, text in zip(TABLES, (markdown(record), as_csv(record), latex(record)), strict=True):
        write_atomically(path / name, text)


def names_of_own(data: object, model: object) -> dict[str, str]:
    """The names of data and model where they are objects of the user; what is neither that nor a name is refused."""
    for name, value, kind in (("data", data, DataSet), ("model", model, nn.Module)):
        if value is not None and not isinstance(value, (str, kind)):
            raise HoldfastError(f"{name} must be a name or a {kind.__name__}, not a {type(value).__name__}")
    own = {"data": data.name} if isinstance(data, DataSet) else {}
    return own | ({"model": type(model).__name__} if isinstance(model, nn.Module) else {})


def facts_of(federation: Federation) -> dict[str, Any]:
    """What the result says of the data: its classes, and who holds how many of each."""
    counts = None
    if federation.clients <= MOST_CLIENTS:
        labels = federation.data.y.cpu().numpy()
        counts = federation.deal.counts(labels, federation.classes).tolist()
    return {"classes": list(federation.data.classes), "counts": counts}


def check_numbers(jobs: int, targets: Sequence[float] | None) -> None:
    if not isinstance(jobs, int) or isinstance(jobs, bool) or jobs < 1:
        raise HoldfastError(f"jobs must be a whole number of at least 1, not {jobs}")
    if targets is not None and not len(targets):
        raise HoldfastError("targets must be accuracies such as 0.8, or be left out")
    for target in targets or ():
        if not 0 < target <= 1:
            raise HoldfastError(f"a target is an accuracy in (0, 1], such as 0.8, not {target:g}")
