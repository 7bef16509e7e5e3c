"""``holdfast.tune``: the best setting of every method, with the same budget for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from holdfast.comparison.compare import check_numbers, facts_of, python_objects
from holdfast.comparison.executor import Executor
from holdfast.comparison.labels import slug
from holdfast.comparison.plan_schema import PROCESS, ExecutionOptions
from holdfast.comparison.pool_choice import check_pool
from holdfast.comparison.runner import refuse_damaged, refuse_mixed_meanings, run_all
from holdfast.core.errors import HoldfastError
from holdfast.core.folder_lock import FolderLock
from holdfast.core.notebook import shows_progress
from holdfast.core.typed_json import to_json
from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation
from holdfast.method.method import Method
from holdfast.method.part import Part
from holdfast.metrics.metric_names import metric_text
from holdfast.models.factories import Factory
from holdfast.runs.code_files import located
from holdfast.runs.folder import folder_for
from holdfast.tuning.optuna_package import optuna_package
from holdfast.tuning.search_space import wanted_from_python
from holdfast.tuning.trial_search import TrialSearch
from holdfast.tuning.trial_store import TrialStore
from holdfast.tuning.tune_folder import TUNE_PICTURE, TuneFolder
from holdfast.tuning.tune_observers import TuneObserver
from holdfast.tuning.tune_picture import picture
from holdfast.tuning.tune_plan import FACTOR, TunePlan, TuneRequest, make_tune_plan, plan_again
from holdfast.tuning.tune_result import tune_study
from holdfast.tuning.tune_schema import TunedEntry, TuneStudy
from holdfast.tuning.tune_tables import tune_markdown


@dataclass(frozen=True)
class Tuning:
    """The outcome of a search.

    Attributes:
        plan: What was searched.
        folder: Where it is kept.
        study: The results; None if it was stopped before the end.
    """

    plan: TunePlan
    folder: Path
    study: TuneStudy | None

    @property
    def finished(self) -> bool:
        """Whether all trials and all runs on fresh seeds are done."""
        return self.study is not None

    @cached_property
    def record(self) -> dict[str, Any]:
        """The content of ``tune.json``; empty if the search was stopped before the end."""
        record: dict[str, Any] = {} if self.study is None else to_json(self.study)
        return record

    @property
    def entries(self) -> list[TunedEntry]:
        """A method each, with its best setting and its scores; none if the search was stopped before the end."""
        return [] if self.study is None else self.study.entries

    @property
    def best(self) -> dict[str, dict[str, Any]]:
        """The best values of every method, by name; without methods of which every trial diverged."""
        return {e.method: e.best for e in self.entries if e.best is not None}

    def markdown(self) -> str:
        """Return the tables as Markdown; the search must be finished."""
        if self.study is None:
            raise HoldfastError(f"the search in {self.folder} is not finished: resume it to get its tables")
        return tune_markdown(self.study, TUNE_PICTURE)

    def __repr__(self) -> str:
        state = "finished" if self.finished else "not finished"
        return f"Tuning({len(self.plan.spaces)} methods, {self.plan.trials} trials each, {state}, in {self.folder})"


def tune(
    methods: Sequence[str | Part | Method],
    data: str | DataSet | None = None,
    model: str | nn.Module | Factory | None = None,
    *,
    trials: int | None = None,
    budget: int | None = None,
    search: Mapping[str, Any] | None = None,
    sampler: str = "tpe",
    reduction: int = FACTOR,
    seeds: int = 5,
    first_seed: int = 0,
    jobs: int = 1,
    executor: str = PROCESS,
    out: str | Path | None = None,
    overwrite: bool = False,
    light: bool = False,
    watch: TuneObserver | None = None,
    stop: Callable[[], bool] = lambda: False,
    progress: bool | None = None,
    **settings: Any,
) -> Tuning:
    """Search the best setting of every method on validation data, and judge it on test data with fresh seeds.

    Args:
        methods: The methods; each gets the same budget, and the first is what the others are compared with.
        data: A data set or its name.
        model: The name of a model, a factory, or a module.
        trials: Settings to try for every method; 27 by default.
        budget: In place of trials: rounds that the search of every method may take.
        search: Ranges such as ``{"lr": (0.01, 1, "log")}`` and lists of values, in place of the declared ranges.
        sampler: What proposes settings: ``tpe``, ``grid`` or ``random``.
        reduction: Of so many trials at a rung, one continues; 1: all run to the end.
        seeds: How many fresh seeds judge the best setting.
        first_seed: The seed of the search; the fresh ones follow it.
        jobs: Number of processes that share the work; it changes no result.
        executor: Where they run: ``process`` for this machine, ``ray``, ``ray://host:port`` or ``slurm``.
        out: The folder of the search, by default a new one in ``runs``. Called again with the same folder, only what
            is missing is run.
        overwrite: Replace the search in ``out``.
        light: Delete the checkpoints of the runs on fresh seeds, too; those of trials are always deleted.
        watch: Follows the search.
        stop: Asked after every round whether to stop.
        progress: Whether to show a live table; by default only in a notebook, unless ``watch`` is given.
        **settings: Fields of ``Config`` that all runs share; what is set is not searched.

    Returns:
        The search; it has no study if it was stopped.
    """
    optuna_package()
    check_numbers(jobs, None)
    if isinstance(data, Federation):
        raise HoldfastError("tune deals the federation itself: give it the data set, and split and clients")
    check_pool(executor)
    if callable(settings.get("metric")) and (jobs > 1 or executor != PROCESS):
        raise HoldfastError("a metric from Python needs jobs=1; with more, put it in a file: metric='costs.py:cost'")
    from_python = python_objects(data, model)
    named = {name: value for name, value in (("data", data), ("model", model)) if isinstance(value, str)}
    objects = {what.removesuffix(" factory"): name for what, name in from_python.items()}
    if "metric" in settings:
        own = str(metric_text(settings["metric"]))
        from_python |= {"metric": own} if callable(settings["metric"]) else {}
        settings |= {"metric": own}
    request = TuneRequest(
        methods, settings | named | objects, wanted_from_python(search or {}), trials, budget, sampler, reduction,
        seeds, first_seed, ExecutionOptions(None, jobs, light, executor), from_python,
    )  # fmt: skip
    carrier = Executor(data if isinstance(data, DataSet) else None, None if isinstance(model, str) else model)
    plan = make_tune_plan(request)
    plan = make_tune_plan(request, carrier.data_of(plan.config))
    with folder_for(None if out is None else Path(out), "tune", slug(plan.config.data)) as path:
        return run_tune_plan(plan, carrier, TuneFolder(path), overwrite, watch or _follower(progress), stop)


def resume_tune(
    out: str | Path, execution: ExecutionOptions | None = None, watch: TuneObserver | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Tuning:  # fmt: skip
    """Resume the search in a folder with what is stored there.

    Args:
        out: The folder.
        execution: Where runs are carried out now, how many at a time, and whether their checkpoints are kept.
        watch: Follows the search.
        stop: Asked after every round whether to stop.

    Returns:
        The search.
    """
    folder = TuneFolder(Path(out))
    stored = folder.stored()
    if stored.own:
        own = " and ".join(f"{what} ({name})" for what, name in stored.own.items())
        raise HoldfastError(
            f"the search in {folder.path} was started from Python with its own {own}: call holdfast.tune again with "
            "the same arguments"
        )
    how = execution or ExecutionOptions()
    check_numbers(how.jobs, None)
    check_pool(how.executor)
    return run_tune_plan(plan_again(stored, how), Executor(), folder, False, watch or TuneObserver(), stop)


def _follower(progress: bool | None) -> TuneObserver:
    if not shows_progress(progress):
        return TuneObserver()
    from rich.console import Console

    from holdfast.tuning.tune_progress import tune_observer

    return tune_observer(Console(stderr=True), quiet=False)


def run_tune_plan(
    plan: TunePlan,
    executor: Executor,
    folder: TuneFolder,
    overwrite: bool,
    watch: TuneObserver,
    stop: Callable[[], bool],
) -> Tuning:
    """Run whatever a plan still needs.

    Args:
        plan: What to search.
        executor: Runs the trials.
        folder: Where the search is kept.
        overwrite: Delete the search that is there first.
        watch: Follows the search.
        stop: Asked after every round whether to stop.

    Returns:
        The search, finished or stopped.
    """
    usual = {text: {a.name: a.usual for a in axes if a.holds(a.usual)} for text, axes in plan.spaces.items()}
    first = plan.fresh_runs(usual, folder.path)[: len(usual)]
    metric = facts_of(executor.federation(first[0].config), located(plan.config).metric).measured
    folder.check(plan.stored(metric), overwrite)
    for task in first:
        executor.check(task)
    watch.metric = metric
    with FolderLock(folder.path):
        if overwrite:
            folder.clear()
        folder.write_plan(plan.stored(metric))
        with TrialStore(folder.path, plan.spaces, metric) as store:
            search = TrialSearch(plan, folder.path, store, metric, executor, watch, stop)
            study = carried_out(search)
        if study is not None:
            folder.write_result(study, tune_markdown(study, TUNE_PICTURE), picture(study))
    return Tuning(plan, folder.path, study)


def carried_out(search: TrialSearch) -> TuneStudy | None:
    """Search, then run the best settings on fresh seeds; return None if that was stopped."""
    plan, watch = search.plan, search.watch
    fresh = plan.config.rounds * len(plan.finals.seeds)
    watch.start(list(plan.spaces), [plan.halving(m).rounds + fresh for m in plan.spaces], search.rounds_done())
    try:
        if not search.carry_out():
            return None
        best = {m: search.store.tried(m)[number].point for m, number in search.best().items()}
        tasks = plan.fresh_runs(best, search.folder)
        refuse_mixed_meanings(tasks)
        refuse_damaged(tasks)
        watch.finals()
        execution = plan.finals.execution
        if not run_all(tasks, search.executor, execution.jobs, watch, search.stop, execution.light, execution.executor):
            return None
        return tune_study(search)
    finally:
        watch.finish()
