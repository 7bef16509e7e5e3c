"""What a search consists of: a space, a budget and a sampler for every method, and fresh seeds for the best."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.comparison.part_sweeps import is_part_axis, text_with_values, with_values
from holdfast.comparison.plan import ComparisonRequest, Entry, Plan, flags, make_plan, settings_of
from holdfast.comparison.plan_schema import ExecutionOptions
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.study_schema import MetricFacts
from holdfast.core.errors import HoldfastError
from holdfast.core.params import search_range
from holdfast.data.dataset import DataSet
from holdfast.method.config import FIELDS, RIVALS, Config
from holdfast.method.config_text import flag_words
from holdfast.method.held_out import HELD_OUT
from holdfast.method.method import Method
from holdfast.method.part import Part
from holdfast.runs.code_files import recorded
from holdfast.tuning.halving import Halving, rungs_of, trials_within
from holdfast.tuning.sampling import SAMPLERS, grid
from holdfast.tuning.search_axis import SearchAxis
from holdfast.tuning.search_space import Wanted, check_wanted, space_of
from holdfast.tuning.tune_schema import StoredTunePlan

TRIALS, FACTOR = 27, 3


@dataclass(frozen=True)
class TuneRequest:
    """What a user asks to search.

    Attributes:
        methods: The methods.
        settings: Fields of ``Config`` that all runs share; they are not searched.
        search: Ranges and lists of values by name; they replace declared ranges.
        trials: Settings to try for every method.
        budget: In place of trials: rounds that the search of every method may take.
        sampler: What proposes the settings.
        reduction: Of so many trials at a rung, one continues; 1: all run to the end.
        seeds: How many fresh seeds judge the best setting.
        first_seed: The seed of the search; the fresh ones follow it.
        execution: Where runs are carried out, how many at a time, and whether their checkpoints are kept.
        from_python: The names of data and model where they are Python objects.
    """

    methods: Sequence[str | Part | Method]
    settings: Mapping[str, Any] = field(default_factory=dict)
    search: Mapping[str, Wanted] = field(default_factory=dict)
    trials: int | None = None
    budget: int | None = None
    sampler: str = SAMPLERS[0]
    reduction: int = FACTOR
    seeds: int = 5
    first_seed: int = 0
    execution: ExecutionOptions = field(default_factory=ExecutionOptions)
    from_python: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TunePlan:
    """A search before it is run.

    Attributes:
        finals: The comparison on fresh seeds, without the best values.
        spaces: What is searched, by the method's text.
        trials: The most trials of a method.
        rungs: The rounds at which trials are compared.
        factor: Of so many trials at a rung, one continues.
        sampler: What proposes the trials.
        search_seed: The seed of the search.
    """

    finals: Plan
    spaces: dict[str, list[SearchAxis]]
    trials: int
    rungs: tuple[int, ...]
    factor: int
    sampler: str
    search_seed: int

    @property
    def config(self) -> Config:
        """The settings that all runs share."""
        return self.finals.config

    @property
    def entries(self) -> list[Entry]:
        """The methods."""
        return self.finals.entries

    def halving(self, method: str) -> Halving:
        """Return how many trials of a method run how far."""
        trials = len(grid(self.spaces[method], self.trials)) if self.sampler == "grid" else self.trials
        return Halving(trials, self.rungs, self.factor)

    def trial(self, row: int, number: int, point: dict[str, Any], rung: int, out: Path) -> PlannedRun:
        """Return the run of a trial up to a rung.

        Args:
            row: The number of its method.
            number: The number of the trial.
            point: What it tries.
            rung: The round of the rung.
            out: The folder of the search.

        Returns:
            The run; it pauses at the rung, unless that is its end.
        """
        until = rung if rung < self.config.rounds else None
        task = self._run(row, point, self.search_seed, out / self.entries[row].folder / f"trial-{number:03d}")
        return replace(task, label=f"{task.label}, trial {number}", until=until)

    def fresh_runs(self, best: Mapping[str, dict[str, Any]], out: Path) -> list[PlannedRun]:
        """Return the runs of the best settings on fresh seeds, seed by seed.

        Args:
            best: The best values, by method.
            out: The folder of the search.

        Returns:
            The runs; none of a method whose trials have all diverged.
        """
        return [
            self._run(row, best[e.text], seed, out / e.folder / "best" / f"seed-{seed}")
            for seed in self.finals.seeds
            for row, e in enumerate(self.entries)
            if e.text in best
        ]

    def _run(self, row: int, point: dict[str, Any], seed: int, folder: Path) -> PlannedRun:
        entry = self.entries[row]
        config = recorded(config_at(self.config, entry.text, point).changed(seed=seed))
        return PlannedRun(row, 0, entry.label, config, with_values(entry.method, point), folder)

    def stored(self, metric: MetricFacts) -> StoredTunePlan:
        """Return what ``tune_plan.json`` holds."""
        return StoredTunePlan(
            methods=[text for text, _ in self.finals.methods],
            settings={k: v for k, v in settings_of(self.config).items() if k not in ("method", "seed")},
            spaces=self.spaces,
            trials=self.trials,
            rungs=list(self.rungs),
            factor=self.factor,
            sampler=self.sampler,
            search_seed=self.search_seed,
            seeds=list(self.finals.seeds),
            own=self.finals.from_python,
            measured=metric,
        )

    def command(self, out: Path) -> str | None:
        """Return the command that makes or resumes this search; None if it needs objects from Python."""
        if self.finals.from_python:
            return None
        words = ["holdfast", "tune", *self.spaces, *flags(self.config, ("method", "seed"))]
        words += set_as_usual(self.config, self.spaces)
        for text in dict.fromkeys(str(axis) for axes in self.spaces.values() for axis in axes if not axis.declared):
            words += ["--search", text]
        words += ["--trials", str(self.trials), "--sampler", self.sampler, "--reduction", str(self.factor)]
        words += ["--seeds", str(len(self.finals.seeds)), "--first-seed", str(self.search_seed)]
        return shlex.join([*words, "--out", str(out)])


def config_at(config: Config, text: str, point: Mapping[str, Any]) -> Config:
    """Return the settings of a run of a method at one point of its space."""
    settings = {name: value for name, value in point.items() if not is_part_axis(name)}
    return config.changed(method=text_with_values(text, point), **settings)


def set_as_usual(config: Config, spaces: Mapping[str, Sequence[SearchAxis]]) -> list[str]:
    """Return the flags of settings that have a range and are not searched, although their values are the defaults."""
    searched = {axis.name for axes in spaces.values() for axis in axes}
    ruled_out = {one for pair in RIVALS for one in pair if searched & {*pair} or config.steps is not None}
    values = {**vars(config), "epochs": config.epochs or config.passes}
    names = [name for name, f in FIELDS.items() if search_range(f) and name not in {*searched, *ruled_out}]
    return [word for n in names if getattr(config, n) == FIELDS[n].default for word in flag_words(n, values[n])]


def make_tune_plan(request: TuneRequest, data: DataSet | None = None) -> TunePlan:
    """Check a request and return its plan; every bad method, setting, range or budget is an error here.

    Args:
        request: What to search.
        data: The data, if it decides the split and the number of clients.

    Returns:
        The plan.
    """
    check_request(request)
    usual = {"validation": HELD_OUT["tune"], "split_seed": request.first_seed}
    finals = make_plan(
        ComparisonRequest(
            methods=request.methods,
            settings={**usual, **request.settings},
            seeds=request.seeds,
            first_seed=request.first_seed + 1,
            execution=request.execution,
            from_python=request.from_python,
        )
    )
    if data is not None:
        finals = finals.decided(data)
    if finals.config.validation == 0:
        raise HoldfastError("tune chooses by validation data, and validation is 0: leave it out, or set it to 0.1")
    check_wanted(request.search, [text for text, _ in finals.methods], request.settings)
    spaces = {
        text: space_of(text, method, finals.config, request.settings, request.search) for text, method in finals.methods
    }
    rungs = rungs_of(finals.config.rounds, request.reduction, finals.config.eval_every)
    plan = TunePlan(
        finals, spaces, trials_of(request, rungs), rungs, request.reduction, request.sampler, request.first_seed
    )
    for text in spaces:
        plan.halving(text)  # a grid may be too large
    return plan


def plan_again(stored: StoredTunePlan, execution: ExecutionOptions) -> TunePlan:
    """Return the plan of a search on disk.

    Args:
        stored: What is stored.
        execution: Where runs are carried out now, how many at a time, and whether their checkpoints are kept.

    Returns:
        The plan.
    """
    settings = {name: value for name, value in stored.settings.items() if value is not None}
    finals = make_plan(ComparisonRequest(stored.methods, settings, len(stored.seeds), stored.seeds[0], {}, execution))
    rungs = tuple(stored.rungs)
    return TunePlan(finals, stored.spaces, stored.trials, rungs, stored.factor, stored.sampler, stored.search_seed)


def check_request(request: TuneRequest) -> None:
    """Raise an error for anything in a request that needs no data and no methods to be judged."""
    if isinstance(request.methods, (str, Part, Method)) or not request.methods:
        raise HoldfastError("tune needs a list of methods, such as fedavg and fedbug")
    if request.sampler not in SAMPLERS:
        raise HoldfastError(f"the sampler must be one of {', '.join(SAMPLERS)}, not {request.sampler}")
    if request.trials is not None and request.budget is not None:
        raise HoldfastError("trials and budget cannot be used together: set one of them")
    for name, low in (("trials", 1), ("budget", 1), ("reduction", 1), ("seeds", 1), ("first_seed", 0)):
        value = getattr(request, name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < low):
            raise HoldfastError(f"{name} must be a whole number of at least {low}, not {value}")


def trials_of(request: TuneRequest, rungs: tuple[int, ...]) -> int:
    """Return the trials of every method; a budget that does not suffice for one of them is an error."""
    if request.budget is None:
        return TRIALS if request.trials is None else request.trials
    trials = trials_within(request.budget, rungs, request.reduction)
    if not trials:
        raise HoldfastError(
            f"a budget of {request.budget} rounds is too small: one run takes {rungs[-1]}; raise the budget to "
            f"{rungs[-1]} or more, or lower rounds"
        )
    return trials
