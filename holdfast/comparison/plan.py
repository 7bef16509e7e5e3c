"""What a comparison consists of: methods × sweep points, each with every seed."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from holdfast.comparison.labels import EntryName, entry_names
from holdfast.comparison.part_sweeps import (
    check_axis,
    is_part_axis,
    text_with_values,
    unlisted,
    value_to_text,
    values_from_text,
    with_values,
)
from holdfast.comparison.plan_schema import PROCESS, DataFacts, ExecutionOptions, StoredPlan
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.study_schema import MetricFacts
from holdfast.core.errors import HoldfastError, unknown
from holdfast.core.shell_words import command_line
from holdfast.core.user_files import MODULES
from holdfast.data.dataset import DataSet
from holdfast.data.given_clients import decide_clients
from holdfast.data.normalisation import PUBLISHED
from holdfast.data.split_sum import read as read_split
from holdfast.method.config import FIELDS, RIVALS, Config, changed_settings, with_role
from holdfast.method.config_text import flag_words, setting_from_text, setting_to_text
from holdfast.method.method import Method, as_method
from holdfast.method.part import Part
from holdfast.metrics.metric import Metric
from holdfast.runs.code_files import placed, recorded, with_files_of
from holdfast.runs.file_imports import import_parts

# Settings that a sweep may change and that change who trains on what.
WHO_TRAINS = tuple(name for name in with_role("federation", "cohort") if not FIELDS[name].metadata["not_swept"])
PARTNERS = {"delta": "epsilon"}  # settings that have no meaning without another


@dataclass(frozen=True)
class Entry(EntryName):
    """One row of the comparison: a method at one point of the sweep."""

    method: Method


@dataclass(frozen=True)
class ComparisonRequest:
    """What a user asks to compare.

    Attributes:
        methods: The methods; the first is the reference.
        settings: Fields of ``Config`` that all runs share.
        seeds: Number of runs of every method.
        first_seed: The first seed; the others follow it.
        sweep: Settings with several values.
        execution: Targets, jobs and whether to keep checkpoints.
        from_python: The names of data and model where they are Python objects.
        stored: Whether it was read from disk to be reported: then no file of code is executed.
    """

    methods: Sequence[str | Part | Method]
    settings: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 5
    first_seed: int = 0
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    execution: ExecutionOptions = field(default_factory=ExecutionOptions)
    from_python: Mapping[str, str] = field(default_factory=dict)
    stored: bool = False


@dataclass(frozen=True)
class Plan:
    """A comparison before it is run.

    Attributes:
        config: The settings that all runs share.
        methods: Every method, as text and built.
        sweep: Settings with several values.
        seeds: The seeds of every entry.
        execution: What may differ each time the comparison is resumed.
        from_python: What only Python can provide, by name: data, model, parts.
    """

    config: Config
    methods: tuple[tuple[str, Method], ...]
    sweep: dict[str, tuple[Any, ...]]
    seeds: tuple[int, ...]
    execution: ExecutionOptions = field(default_factory=ExecutionOptions)
    from_python: dict[str, str] = field(default_factory=dict)

    @property
    def entries(self) -> list[Entry]:
        """Every method at every point, the first method first."""
        built = dict(self.methods)
        return [
            Entry(n.text, n.settings, n.label, n.folder, with_values(built[n.text], n.settings))
            for n in entry_names(list(built), self.sweep)
        ]

    def config_of(self, entry: Entry, seed: int) -> Config:
        settings = {name: value for name, value in entry.settings.items() if not is_part_axis(name)}
        method = text_with_values(entry.text, entry.settings)
        return self.config.changed(method=method, seed=seed, **settings)

    def decided(self, data: DataSet) -> Plan:
        """Return the plan with the split and the number of clients decided that were left open.

        All points of a sweep over splits get the same number of clients: that of the data, if one of them is ``given``.
        """
        config = self.config
        splits = self.sweep.get("split", (config.split,))
        clients = None if "clients" in self.sweep else config.clients
        found = [decide_clients(data, split, clients) for split in splits]
        settings: dict[str, Any] = {"normalisation": data.normalisation}
        if "split" not in self.sweep:
            settings["split"] = found[0][0]
        if "clients" not in self.sweep:
            brought = [many for split, many in found if read_split(split).by_groups]
            settings["clients"] = brought[0] if brought else found[0][1]
        return replace(self, config=config.changed(**settings))

    def tasks(self, out: Path) -> list[PlannedRun]:
        """List the runs seed by seed: differences show early, and each federation is dealt once."""
        entries = self.entries
        beside = [entries.index(self.reference(entry)) for entry in entries]
        return [
            PlannedRun(
                i, beside[i], e.label, recorded(self.config_of(e, seed)), e.method, out / e.folder / f"seed-{seed}"
            )
            for seed in self.seeds
            for i, e in enumerate(entries)
        ]

    def reference(self, entry: Entry) -> Entry:
        """Return what an entry is compared with: the first method at the same point of the sweep.

        The points of a single method are compared with its first point, on the same federation if the sweep changes it.
        A parameter of a part counts only where both have the part.
        """
        names = WHO_TRAINS if len(self.methods) == 1 else tuple(self.sweep)

        def agrees(e: Entry) -> bool:
            both = [name for name in names if name in e.settings and name in entry.settings]
            return all(e.settings[name] == entry.settings[name] for name in both)

        return next(e for e in self.entries if agrees(e))

    def settings(self) -> dict[str, Any]:
        """Return the notable settings that all runs share."""
        return notable_settings(self.config, self.cohort(), ("method", "seed", "data_dir", *self.sweep))

    def defaults(self) -> dict[str, Any]:
        """Return further settings that all runs share and that a page shows, although they are the defaults."""
        return shown_defaults(self.config, self.sweep)

    def cohort(self) -> int | None:
        """Return the clients per round if that number is the same for all runs; by default it depends on clients."""
        if self.config.participation is not None or "participation" in self.sweep:
            return None
        sizes = {self.config_of(entry, 0).cohort_size for entry in self.entries}
        return sizes.pop() if len(sizes) == 1 else None

    def swept(self) -> dict[str, list[Any]]:
        """Return the sweep as JSON has it: lists in place of tuples."""
        return {name: [list(v) if isinstance(v, tuple) else v for v in vs] for name, vs in self.sweep.items()}

    def stored(self, facts: DataFacts) -> StoredPlan:
        """Return what ``plan.json`` holds."""
        return StoredPlan(
            methods=[text for text, _ in self.methods],
            sweep=self.swept(),
            seeds=list(self.seeds),
            settings={k: v for k, v in settings_of(self.config).items() if k not in ("method", "seed")},
            how=self.execution,
            own=self.from_python,
            classes=facts.classes,
            counts=facts.counts,
            names=facts.names,
            measured=facts.measured,
        )

    def command(self, out: Path) -> str | None:
        """Return the command that makes or resumes this comparison; None if it needs objects from Python."""
        if self.from_python:
            return None
        words = ["holdfast", "compare", *(text for text, _ in self.methods), *flags(self.config, ("method", "seed"))]
        words += ["--seeds", str(len(self.seeds))]
        words += ["--first-seed", str(self.seeds[0])] if self.seeds[0] else []
        for name, values in self.sweep.items():
            words += ["--sweep", f"{name}={','.join(value_to_text(name, value) for value in values)}"]
        return command_line([*words, *execution_flags(self.execution), "--out", str(out)])


def settings_of(config: Config) -> dict[str, Any]:
    return {f.name: getattr(config, f.name) for f in fields(Config)}


def notable_settings(config: Config, cohort: int | None, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """Return settings that differ from their defaults, and those that every table should name.

    Args:
        config: The settings.
        cohort: Clients per round; None if there is no fixed number.
        leave_out: Settings to leave out.

    Returns:
        The settings in the order of ``Config``.
    """
    values = settings_of(config) | {"cohort": cohort}
    hidden = {*leave_out, *with_role("recorded")} | ({"cohort"} if cohort is None else set())
    if config.normalisation not in (None, PUBLISHED):
        hidden -= {"normalisation"}
    headline = with_role("headline")
    return {
        k: v
        for k, v in values.items()
        if k not in hidden and ((k in headline and v is not None) or v != FIELDS[k].default)
    }


def shown_defaults(config: Config, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """Return the settings that every page shows and that are the defaults: those with the role ``setup``.

    A setting whose rival is set has no meaning and is left out, such as epochs where steps are set; likewise one that
    belongs to another, which is not set.
    """
    values = settings_of(config) | {"epochs": config.passes, "split_seed": "that of the run"}
    found: dict[str, Any] = {}
    for name in with_role("setup"):
        rivals = [other for pair in RIVALS if name in pair for other in pair if other != name]
        ruled_out = any(getattr(config, other) != FIELDS[other].default or other in leave_out for other in rivals)
        ruled_out |= name in PARTNERS and getattr(config, PARTNERS[name]) is None and PARTNERS[name] not in leave_out
        if getattr(config, name) == FIELDS[name].default and name not in leave_out and not ruled_out:
            found[name] = values[name]
    return found | ({"normalisation": PUBLISHED} if config.normalisation == PUBLISHED else {})


def metric_facts(metric: Metric, task: str) -> MetricFacts:
    """Return what a comparison says about its metric."""
    return MetricFacts(metric.name, metric.higher_is_better, metric.percent, task)


def flags(config: Config, leave_out: Collection[str]) -> list[str]:
    """Return the words of a command line that set everything in which a config differs from the defaults."""
    changed = changed_settings(placed(config), (*leave_out, *with_role("recorded")))
    return [word for name, value in changed.items() for word in flag_words(name, value)]


def execution_flags(options: ExecutionOptions) -> list[str]:
    targets = ["--targets", ",".join(map(str, options.targets))] if options.targets else []
    jobs = ["--jobs", str(options.jobs)] if options.jobs > 1 else []
    executor = ["--executor", options.executor] if options.executor != PROCESS else []
    return targets + jobs + ["--light"] * options.light + executor


def make_plan(request: ComparisonRequest) -> Plan:
    """Check a request and return its plan; every bad method, setting or sweep value is an error here."""
    methods, settings = request.methods, request.settings
    if isinstance(methods, (str, Part, Method)) or not methods:
        raise HoldfastError("compare needs a list of methods; the first is what the others are compared with")
    for name, many, low in (("seeds", request.seeds, 1), ("first_seed", request.first_seed, 0)):
        if not isinstance(many, int) or isinstance(many, bool) or many < low:
            raise HoldfastError(f"{name} must be a whole number of at least {low}, not {many}")
    for name in ("method", "seed"):
        if name in settings:
            raise HoldfastError(f"{name} cannot be set for a whole comparison: {FIELDS[name].metadata['not_swept']}")
    own = {name: values for name, values in request.sweep.items() if is_part_axis(name)}
    others = {name: values for name, values in request.sweep.items() if name not in own}
    config, checked = recorded_sweep(recorded(Config().changed(**settings)), check_sweep(others, settings))
    built = built_methods(request, config)
    checked |= own_axes(own, [text for text, _ in built], request.stored)
    sweep = {name: checked[name] for name in request.sweep}
    plan = Plan(
        config,
        tuple(built),
        sweep,
        tuple(range(request.first_seed, request.first_seed + request.seeds)),
        request.execution,
        {**request.from_python, **users_parts(built)},
    )
    for entry in plan.entries:
        plan.config_of(entry, plan.seeds[-1])
    return plan


def built_methods(request: ComparisonRequest, config: Config) -> list[tuple[str, Method]]:
    """Return every method as text and built; two that are the same are an error.

    Parts of a stored comparison that only a file of code or Python can provide are not built: it is not run.
    """
    if request.stored and (config.imports or "parts" in request.from_python):
        return [(str(m), Method()) for m in request.methods]
    import_parts(config)
    built = [(str(m), as_method(m)) for m in request.methods]
    for (text, method), (other, same) in itertools.combinations(built, 2):
        if method == same:
            raise HoldfastError(f"{text} and {other} are the same method: leave one out")
    return built


def recorded_sweep(config: Config, sweep: dict[str, tuple[Any, ...]]) -> tuple[Config, dict[str, tuple[Any, ...]]]:
    """Record the files of code that models of a sweep name, too; the sweep then names them by their names alone."""
    if "model" not in sweep:
        return config, sweep
    points = [recorded(config.changed(model=value)) for value in sweep["model"]]
    return with_files_of(config, points), sweep | {"model": tuple(point.model for point in points)}


def users_parts(methods: Sequence[tuple[str, Method]]) -> dict[str, str]:
    """Name the parts that the user has written: the command line does not know them."""
    known = ("holdfast.", MODULES)  # those of a file are known once it is imported
    names = [p.name for _, method in methods for p in method.parts if not type(p).__module__.startswith(known)]
    return {"parts": ", ".join(dict.fromkeys(names))} if names else {}


def check_sweep(sweep: Mapping[str, Sequence[Any]], settings: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Check the axes of a sweep: known settings, at least one value each, none repeated."""
    axes: dict[str, tuple[Any, ...]] = {}
    for name, values in sweep.items():
        if name not in FIELDS:
            raise unknown("setting to sweep", name, FIELDS)
        if FIELDS[name].metadata["not_swept"]:
            raise HoldfastError(f"{name} cannot be swept: {FIELDS[name].metadata['not_swept']}")
        if name in settings:
            raise HoldfastError(
                f"{name} is both swept and set to {setting_to_text(settings[name])}: leave one of them out"
            )
        refuse_no_list(name, values)
        axes[name] = tuple(getattr(Config().changed(**{name: v}), name) for v in values)
        refuse_repeated(name, axes[name])
    return axes


def own_axes(sweep: Mapping[str, Sequence[Any]], methods: Sequence[str], stored: bool) -> dict[str, tuple[Any, ...]]:
    """Check the axes of a sweep that are parameters of parts.

    Args:
        sweep: Their names and values.
        methods: The methods of the comparison, as text.
        stored: Whether the comparison was read from disk: then it was checked, and its parts may not be known here.

    Returns:
        The values in the types of the parameters.
    """
    axes: dict[str, tuple[Any, ...]] = {}
    for name, values in sweep.items():
        refuse_no_list(name, values)
        axes[name] = tuple(map(unlisted, values)) if stored else check_axis(name, values, methods)
        refuse_repeated(name, axes[name])
    return axes


def refuse_no_list(name: str, values: Any) -> None:
    if isinstance(values, str) or not values:
        raise HoldfastError(f"the sweep of {name} needs a list of values, such as {name}=a,b")


def refuse_repeated(name: str, values: tuple[Any, ...]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise HoldfastError(f"the sweep of {name} lists {value_to_text(name, value)} twice: remove one")


def sweep_from_text(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Parse ``lr=0.01,0.1`` or ``prox.mu=0.01,0.1`` as a user writes it; commas within parentheses belong to the value.

    >>> sweep_from_text(["split=iid,dirichlet(0.1, balanced=true)", "batch=8,16", "prox.mu=0.01,0.1"])
    {'split': ['iid', 'dirichlet(0.1, balanced=true)'], 'batch': [8, 16], 'prox.mu': [0.01, 0.1]}
    """
    sweep: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        part, dot, last = name.strip().rpartition(".")
        name = part + dot + last.replace("-", "_")
        if not equals or not values.strip():
            raise HoldfastError(f"--sweep {text}: expected NAME=VALUE,VALUE,..., such as lr=0.01,0.1")
        if name in sweep:
            raise HoldfastError(f"{name} is swept twice: write --sweep {name}=a,b,c once")
        pieces = words(values)
        sweep[name] = values_from_text(pieces) if dot else [setting_from_text(name, word) for word in pieces]
    return sweep


def words(text: str) -> list[str]:
    """Split a text at commas that are outside of parentheses and brackets.

    >>> words("mlp, mlp(8, [1, 2]), cnn")
    ['mlp', 'mlp(8, [1, 2])', 'cnn']
    """
    pieces, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth <= 0:
            pieces.append("")
        else:
            pieces[-1] += letter
    return [piece.strip() for piece in pieces]
