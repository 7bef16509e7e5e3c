"""``holdfast.compare``: which method works on this data?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from holdfast.comparison.executor import Executor
from holdfast.comparison.labels import slug
from holdfast.comparison.observers import Observer
from holdfast.comparison.plan import ComparisonRequest, Plan, make_plan, metric_facts
from holdfast.comparison.plan_schema import PROCESS, DataFacts, ExecutionOptions
from holdfast.comparison.pool_choice import check_pool
from holdfast.comparison.result import collect
from holdfast.comparison.runner import refuse_damaged, refuse_mixed_meanings, run_all
from holdfast.comparison.study_folder import StudyFolder
from holdfast.comparison.study_schema import FACTORY, MetricFacts, Study
from holdfast.comparison.table_texts import markdown
from holdfast.core.errors import HoldfastError
from holdfast.core.folder_lock import FolderLock
from holdfast.core.notebook import shows_progress
from holdfast.core.typed_json import to_json
from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation
from holdfast.method.method import Method
from holdfast.method.part import Part
from holdfast.metrics.metric_names import metric_text, read_metric
from holdfast.models.factories import Factory
from holdfast.runs.code_files import located
from holdfast.runs.folder import LISTED, folder_for
from holdfast.runs.setup import model_name, refuse_other_objects


@dataclass(frozen=True)
class Comparison:
    """The outcome of a comparison.

    Attributes:
        plan: What was compared.
        folder: Where it is kept.
        study: The results; None if it was stopped before the end.
    """

    plan: Plan
    folder: Path
    study: Study | None

    @property
    def finished(self) -> bool:
        """Whether all runs are done."""
        return self.study is not None

    @cached_property
    def record(self) -> dict[str, Any]:
        """The content of ``compare.json``; empty if the comparison was stopped before the end."""
        record: dict[str, Any] = {} if self.study is None else to_json(self.study)
        return record

    @property
    def entries(self) -> list[dict[str, Any]]:
        """A record per method and sweep point; the first is what the others are compared with."""
        entries: list[dict[str, Any]] = self.record.get("entries", [])
        return entries

    def markdown(self) -> str:
        """Return the tables as Markdown; the comparison must be finished."""
        if self.study is None:
            raise HoldfastError(f"the comparison in {self.folder} is not finished: resume it to get its tables")
        return markdown(self.study)

    def __str__(self) -> str:
        return repr(self) if self.study is None else self.markdown()

    def __repr__(self) -> str:
        state = "finished" if self.finished else "not finished"
        return f"Comparison({len(self.plan.entries)} entries, {len(self.plan.seeds)} seeds, {state}, in {self.folder})"


def compare(
    methods: Sequence[str | Part | Method],
    data: str | DataSet | None = None,
    model: str | nn.Module | Factory | None = None,
    *,
    seeds: int = 5,
    first_seed: int = 0,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    targets: Sequence[float] | None = None,
    jobs: int = 1,
    executor: str = PROCESS,
    out: str | Path | None = None,
    overwrite: bool = False,
    light: bool = False,
    together: bool | None = None,
    watch: Observer | None = None,
    stop: Callable[[], bool] = lambda: False,
    progress: bool | None = None,
    **settings: Any,
) -> Comparison:
    """Run every method on the same federations, cohorts and batches, and compare them with the first, seed by seed.

    Args:
        methods: The methods; the first is the reference.
        data: A data set or its name.
        model: The name of a model; a factory of your own, whose weights follow from each seed; or a module, from whose
            weights all seeds start.
        seeds: Number of runs of every method, one seed each.
        first_seed: The first seed; the others follow it.
        sweep: Fields of ``Config``, each with several values to try.
        targets: Scores to reach; by default 50, 80 and 95% of the best that the first method reaches.
        jobs: Runs at a time, each in its own process.
        executor: Where these processes are: ``process`` for this machine, ``ray``, ``ray://host:port`` or ``slurm``.
        out: The folder of the comparison, by default a new one in ``runs``. Called again with the same folder, only
            what is missing is run.
        overwrite: Replace the comparison in ``out``.
        light: Delete the checkpoints of finished runs.
        together: Whether runs that differ in nothing but seeds, learning rates and numbers of parts share compiled
            steps; None: on a GPU.
        watch: Observes every round and run.
        stop: Asked after every round whether to stop.
        progress: Whether to show a live table; by default only in a notebook, unless ``watch`` is given.
        **settings: Fields of ``Config`` that all runs share.

    Returns:
        The comparison; its ``record`` is empty if it was stopped.
    """
    check_numbers(jobs, targets)
    if isinstance(data, Federation):
        raise HoldfastError("compare deals a federation per seed: give it the data set, and split and clients")
    check_pool(executor)
    if callable(settings.get("metric")) and (jobs > 1 or executor != PROCESS):
        raise HoldfastError("a metric from Python needs jobs=1; with more, put it in a file: metric='costs.py:cost'")
    from_python = python_objects(data, model)
    if "metric" in settings:
        own = {"metric": metric_text(settings["metric"])}
        from_python |= {name: str(text) for name, text in own.items() if callable(settings[name])}
        settings |= own
    named = {name: value for name, value in (("data", data), ("model", model)) if isinstance(value, str)}
    execution = ExecutionOptions(None if targets is None else [float(t) for t in targets], jobs, light, executor)
    objects = {what.removesuffix(" factory"): name for what, name in from_python.items() if what != "metric"}
    common = settings | named | objects
    request = ComparisonRequest(methods, common, seeds, first_seed, sweep or {}, execution, from_python)
    carrier = Executor(data if isinstance(data, DataSet) else None, None if isinstance(model, str) else model)
    plan = make_plan(request)
    plan = plan.decided(carrier.data_of(plan.config))
    watch = watch or _follower(progress)
    with folder_for(None if out is None else Path(out), "compare", slug(plan.config.data)) as path:
        return run_plan(plan, carrier, StudyFolder(path), overwrite, watch, stop, together)


def _follower(progress: bool | None) -> Observer | None:
    if not shows_progress(progress):
        return None
    from rich.console import Console

    from holdfast.comparison.comparison_progress import observer

    return observer(Console(stderr=True), quiet=False)


def run_plan(
    plan: Plan,
    executor: Executor,
    folder: StudyFolder,
    overwrite: bool,
    watch: Observer | None,
    stop: Callable[[], bool],
    together: bool | None = False,
) -> Comparison:
    """Run whatever a plan still needs.

    Args:
        plan: What to compare.
        executor: Runs the tasks.
        folder: Where the comparison is kept.
        overwrite: Delete the comparison that is there first.
        watch: Observes every round and run.
        stop: Asked after every round whether to stop.
        together: Whether runs that are alike share steps; None: on a GPU.

    Returns:
        The comparison, finished or stopped.
    """
    folder.check(plan, overwrite)
    tasks = plan.tasks(folder.path)
    for task in tasks[: len(plan.entries)]:
        executor.check(task)
    facts = facts_of(executor.federation(tasks[0].config), located(plan.config).metric)
    check_targets(plan.execution.targets, facts.measured)
    if watch is not None:
        watch.metric = facts.measured
    with FolderLock(folder.path):
        if overwrite:
            folder.clear()
        refuse_mixed_meanings(tasks)
        refuse_damaged(tasks)
        folder.write_plan(plan, facts)
        how = plan.execution
        done = run_all(tasks, executor, how.jobs, watch, stop, how.light, how.executor, together)
        study = collect(plan, folder.path, facts) if done else None
        if study is not None:
            folder.write_result(study)
    return Comparison(plan, folder.path, study)


def tabulate(path: str | Path, targets: Sequence[float] | None = None) -> Comparison:
    """Write the result and the tables of a comparison again from its finished runs, without running anything.

    By default the targets are those that the comparison was started with.
    """
    check_numbers(1, targets)
    folder = StudyFolder(Path(path))
    plan = folder.plan()
    if targets is not None:
        plan = replace(plan, execution=replace(plan.execution, targets=list(targets)))
    facts = folder.stored().facts
    check_targets(targets, facts.measured)
    study = collect(plan, folder.path, facts)
    folder.write_result(study)
    return Comparison(plan, folder.path, study)


def python_objects(data: DataSet | str | None, model: nn.Module | Factory | str | None) -> dict[str, str]:
    """Name the data and the model where they are Python objects; anything but these and names is an error."""
    if data is not None and not isinstance(data, (str, DataSet)):
        raise HoldfastError(f"data must be a name or a DataSet, not a {type(data).__name__}")
    refuse_other_objects(None, model)
    names = {"data": data.name} if isinstance(data, DataSet) else {}
    if model is None or isinstance(model, str):
        return names
    return names | {"model" if isinstance(model, nn.Module) else FACTORY: model_name(model)}


def facts_of(federation: Federation, metric: str | None) -> DataFacts:
    """Return what is known about the data and the metric, without counts if there are too many clients."""
    task, groups, counts = federation.data.task, list(federation.strata_names), None
    if federation.clients <= LISTED and federation.on_demand is None:
        counts = federation.deal.counts(federation.strata, len(groups)).tolist()
    names = list(federation.client_names) if counts is not None and federation.client_names else None
    return DataFacts(groups, counts, names, metric_facts(read_metric(metric, task), task.name))


def check_numbers(jobs: int, targets: Sequence[float] | None) -> None:
    """Raise an error for a bad number of jobs, or for targets that are no numbers."""
    if not isinstance(jobs, int) or isinstance(jobs, bool) or jobs < 1:
        raise HoldfastError(f"jobs must be a whole number of at least 1, not {jobs}")
    if targets is not None and not len(targets):
        raise HoldfastError("targets is empty: list scores such as 0.8, or leave it out")
    for target in targets or ():
        if not math.isfinite(target):
            raise HoldfastError(f"a target must be a finite number, such as 0.8, not {target}")


def check_targets(targets: Sequence[float] | None, metric: MetricFacts) -> None:
    """Raise an error for a target that a metric cannot have."""
    for target in targets or ():
        if metric.percent and not 0 < target <= 1:
            article = "an" if metric.spoken[0] in "aeiou" else "a"
            raise HoldfastError(f"a target must be {article} {metric.spoken} in (0, 1], such as 0.8, not {target:g}")
