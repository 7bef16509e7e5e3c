"""What a comparison consists of: methods × sweep points, each on every seed."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from holdfast.comparison.task import Task
from holdfast.core.errors import HoldfastError, unknown
from holdfast.core.expression import show
from holdfast.method.config import FIELDS, Config
from holdfast.method.config_text import setting_from_text
from holdfast.method.method import Method, as_method
from holdfast.method.part import Part

NEVER_SWEPT = {  # setting -> what to do instead
    "method": "list several methods",
    "seed": "use --seeds and --first-seed",
    "data": "make one comparison per data set",
    "data_dir": "make one comparison per data set",
}
WHO = ("split", "clients", "cohort", "participation", "public", "augment")  # swept, they change who trains on what
ALWAYS = ("data", "split", "clients", "cohort", "model", "rounds")  # settings that every table should name


@dataclass(frozen=True)
class Entry:
    """One row of the comparison: a method at one point of the sweep."""

    label: str
    text: str  # the method as the user wrote it
    method: Method
    settings: dict[str, Any]  # the sweep point
    folder: str


@dataclass(frozen=True)
class ExecutionOptions:
    """What is asked for beside the runs themselves: it may differ each time that a comparison goes on."""

    targets: Sequence[float] | None = None  # accuracies to reach
    jobs: int = 1
    light: bool = False

    def words(self) -> list[str]:
        """For the command line."""
        targets = ["--targets", ",".join(map(str, self.targets))] if self.targets else []
        jobs = ["--jobs", str(self.jobs)] if self.jobs > 1 else []
        return targets + jobs + ["--light"] * self.light


@dataclass(frozen=True)
class Plan:
    """A comparison before it is run. ``config`` holds the common settings."""

    config: Config
    methods: tuple[tuple[str, Method], ...]
    sweep: dict[str, tuple[Any, ...]]
    seeds: tuple[int, ...]
    how: ExecutionOptions = ExecutionOptions()
    own: dict[str, str] = field(default_factory=dict)  # what only Python can give: data, model, parts

    @property
    def entries(self) -> list[Entry]:
        """Every method at every point, the first method first."""
        points = [dict(zip(self.sweep, values, strict=True)) for values in itertools.product(*self.sweep.values())]
        made: list[Entry] = []
        for (text, method), point in itertools.product(self.methods, points):
            label = ", ".join([text, *(f"{k}={shown(v)}" for k, v in point.items())])
            made.append(Entry(label, text, method, point, fresh(slug(label), [e.folder for e in made])))
        return made

    def config_of(self, entry: Entry, seed: int) -> Config:
        return self.config.changed(method=entry.text, seed=seed, **entry.settings)

    def tasks(self, out: Path) -> list[Task]:
        """The runs, seed by seed: differences can be told early, and each federation is dealt once."""
        entries = self.entries
        beside = [entries.index(self.reference(entry)) for entry in entries]
        return [
            Task(i, beside[i], e.label, self.config_of(e, seed), e.method, out / e.folder / f"seed-{seed}")
            for seed in self.seeds
            for i, e in enumerate(entries)
        ]

    def reference(self, entry: Entry) -> Entry:
        """Whom an entry is compared with: the first method at the same point of the sweep.

        Of a single method, its first point, on the same federation where the sweep changes that.
        """
        names = WHO if len(self.methods) == 1 else tuple(self.sweep)
        return next(e for e in self.entries if all(e.settings.get(k) == entry.settings.get(k) for k in names))

    def settings(self) -> dict[str, Any]:
        """What all runs share: settings that differ from their defaults, and those that every table should name."""
        common = {f.name: getattr(self.config, f.name) for f in fields(Config)} | {"cohort": self.cohort()}
        never = {"method", "seed", "data_dir", *self.sweep} | ({"cohort"} if common["cohort"] is None else set())
        return {k: v for k, v in common.items() if k not in never and (k in ALWAYS or v != FIELDS[k].default)}

    def cohort(self) -> int | None:
        """Clients per round, where that is one number for all: by default it depends on the clients."""
        if self.config.participation is not None or "participation" in self.sweep:
            return None
        sizes = {self.config_of(entry, 0).cohort_size for entry in self.entries}
        return sizes.pop() if len(sizes) == 1 else None

    def record(self) -> dict[str, Any]:
        """For ``plan.json``: what makes it this comparison and no other, and how it was last asked for."""
        common = {f.name: getattr(self.config, f.name) for f in fields(Config) if f.name not in ("method", "seed")}
        return {
            "methods": [text for text, _ in self.methods],
            "sweep": {name: list(values) for name, values in self.sweep.items()},
            "seeds": list(self.seeds),
            "settings": common,
            "how": asdict(self.how),
            "own": self.own,
        }

    def command(self, out: Path) -> str | None:
        """The command line that makes this comparison, or goes on with it; there is none for what Python alone has."""
        if self.own:
            return None
        changed = {f.name: getattr(self.config, f.name) for f in fields(Config) if f.name not in ("method", "seed")}
        words = ["holdfast", "compare", *(text for text, _ in self.methods)]
        for name, value in changed.items():
            flag = "--" + name.replace("_", "-")
            if value == FIELDS[name].default:
                continue
            if isinstance(value, bool):
                words.append(flag if value else f"--no-{flag[2:]}")
            else:
                words += [flag, shown(value)]
        words += ["--seeds", str(len(self.seeds))]
        words += ["--first-seed", str(self.seeds[0])] if self.seeds[0] else []
        for name, values in self.sweep.items():
            words += ["--sweep", f"{name}={','.join(map(shown, values))}"]
        return shlex.join([*words, *self.how.words(), "--out", str(out)])


def make_plan(
    methods: Sequence[str | Part | Method],
    settings: Mapping[str, Any],
    seeds: int = 5,
    first_seed: int = 0,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    how: ExecutionOptions | None = None,
    own: Mapping[str, str] | None = None,
) -> Plan:
    """A checked plan; every bad method, setting or sweep value is found here.

    ``own`` names the data and the model where they are objects of the user and not known by these names.
    """
    if isinstance(methods, (str, Part, Method)) or not methods:
        raise HoldfastError("compare needs a list of methods; the first is what the others are compared with")
    for name, many in (("seeds", seeds), ("first_seed", first_seed)):
        low = 1 if name == "seeds" else 0
        if not isinstance(many, int) or isinstance(many, bool) or many < low:
            raise HoldfastError(f"{name} must be a whole number of at least {low}, not {many}")
    for name in ("method", "seed"):
        if name in settings:
            raise HoldfastError(f"{name} is no common setting of a comparison: {NEVER_SWEPT[name]}")
    built = [(str(m), as_method(m)) for m in methods]
    for (text, method), (other, same) in itertools.combinations(built, 2):
        if method == same:
            raise HoldfastError(f"{text} and {other} are the same method: leave one out")
    config = Config().changed(**settings)
    numbers = tuple(range(first_seed, first_seed + seeds))
    plan = Plan(
        config,
        tuple(built),
        swept(sweep or {}, settings),
        numbers,
        how or ExecutionOptions(),
        {**(own or {}), **own_parts(built)},
    )
    for entry in plan.entries:
        plan.config_of(entry, plan.seeds[-1])
    return plan


def own_parts(methods: Sequence[tuple[str, Method]]) -> dict[str, str]:
    """The parts that the user has written: the command line does not know them."""
    found = [p.name for _, method in methods for p in method.parts if not type(p).__module__.startswith("holdfast.")]
    return {"parts": ", ".join(dict.fromkeys(found))} if found else {}


def swept(sweep: Mapping[str, Sequence[Any]], settings: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """The axes of a sweep, checked: known settings, at least one value each, none twice."""
    found: dict[str, tuple[Any, ...]] = {}
    for name, values in sweep.items():
        if name not in FIELDS:
            raise unknown("setting to sweep", name, FIELDS)
        if name in NEVER_SWEPT:
            raise HoldfastError(f"{name} cannot be swept: {NEVER_SWEPT[name]}")
        if name in settings:
            raise HoldfastError(f"{name} is swept and set to {shown(settings[name])}: leave one of them out")
        if isinstance(values, str) or not values:
            raise HoldfastError(f"the sweep of {name} needs a list of values")
        checked = tuple(getattr(Config().changed(**roomy(name, v)), name) for v in values)
        for value in checked:
            if checked.count(value) > 1:
                raise HoldfastError(f"the sweep of {name} has {shown(value)} twice: keep one")
        found[name] = checked
    return found


def roomy(name: str, value: Any) -> dict[str, Any]:
    """A setting by itself, to be checked: a cohort with as many clients as it needs."""
    return {name: value} | ({"clients": max(value, 1)} if name == "cohort" and isinstance(value, int) else {})


def sweep_from_text(texts: Sequence[str]) -> dict[str, list[Any]]:
    """``lr=0.01,0.1`` as a user writes it; commas within parentheses belong to the value.

    >>> sweep_from_text(["split=iid,dirichlet(0.1, balanced=true)", "batch=8,16"])
    {'split': ['iid', 'dirichlet(0.1, balanced=true)'], 'batch': [8, 16]}
    """
    found: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not values.strip():
            raise HoldfastError(f"--sweep {text}: expected name=value,value,...")
        if name in found:
            raise HoldfastError(f"{name} is swept twice: write --sweep {name}=a,b,c once")
        found[name] = [setting_from_text(name, word) for word in words(values)]
    return found


def words(text: str) -> list[str]:
    """The parts between commas that stand outside of parentheses and brackets.

    >>> words("mlp, mlp(8, [1, 2]), cnn")
    ['mlp', 'mlp(8, [1, 2])', 'cnn']
    """
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth <= 0:
            found.append("")
        else:
            found[-1] += letter
    return [word.strip() for word in found]


def shown(value: Any) -> str:
    """A value as one writes it; read again it is the very same.

    >>> shown(1.0), shown(0.1), shown(0.10000002), shown(None)
    ('1', '0.1', '0.10000002', 'none')
    """
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(float(value))
    return value if isinstance(value, str) else show(value)


def slug(text: str) -> str:
    """A folder name that says what a text says.

    >>> slug("fedbug(0.4)+prox(0.01), lr=0.1")
    'fedbug-0.4-prox-0.01-lr-0.1'
    """
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.").lower()[:80] or "method"


def fresh(name: str, taken: Sequence[str]) -> str:
    """The name, with a number where it is taken."""
    numbered = (name if n == 1 else f"{name}-{n}" for n in itertools.count(1))
    return next(candidate for candidate in numbered if candidate not in taken)
