"""A comparison on disk: ``plan.json``, a run folder per entry and seed, and once all are done ``compare.*``."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, TypeVar

from holdfast.comparison.class_checks import checked_classes
from holdfast.comparison.old_formats import PARTS_RENAMED, modern_keys, modern_plan, modern_study, renamed_folders
from holdfast.comparison.part_sweeps import value_to_text
from holdfast.comparison.plan import ComparisonRequest, Plan, make_plan
from holdfast.comparison.plan_schema import DataFacts, StoredPlan
from holdfast.comparison.study_schema import FACTORY, FORMAT, Study
from holdfast.comparison.table_texts import as_csv, latex, markdown
from holdfast.core.errors import HoldfastError
from holdfast.core.files import ASIDE, write_atomically
from holdfast.core.folder_lock import LOCK, FolderLock
from holdfast.core.typed_json import JsonMismatch, from_json, to_json
from holdfast.method.config import Config
from holdfast.runs.folder import RunFolder
from holdfast.runs.resume import Difference, first_difference
from holdfast.runs.run_files import CONFIG

PLAN, RESULT = "plan.json", "compare.json"
TABLES = ("compare.md", "compare.csv", "compare.tex")
T = TypeVar("T")


class StudyFolder:
    """The folder of one comparison.

    Attributes:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self, plan: Plan, overwrite: bool) -> None:
        """Raise an error unless the folder is new, or holds this comparison or a smaller one that it extends."""
        for path in (self.path, *self.path.parents):
            if path.exists() and not path.is_dir():
                raise HoldfastError(f"{path} is a file, not a folder for a comparison: choose another --out")
        if (self.path / PLAN).exists():
            if not overwrite:
                stored = self.stored()
                check_same_comparison(self.path, stored, plan.stored(stored.facts))
        elif self.path.exists() and any(p.name not in (LOCK, PLAN + ASIDE) for p in self.path.iterdir()):
            raise HoldfastError(f"{self.path} is not empty and holds no comparison: choose another --out")

    def write_plan(self, plan: Plan, facts: DataFacts) -> None:
        """Write ``plan.json``."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._write_stored(plan.stored(facts))

    def write_result(self, study: Study) -> None:
        """Write ``compare.json`` and the tables."""
        write_atomically(self.path / RESULT, json.dumps(to_json(study), allow_nan=False) + "\n")
        for name, text in zip(TABLES, (markdown(study), as_csv(study), latex(study)), strict=True):
            write_atomically(self.path / name, text)

    def stored(self) -> StoredPlan:
        """Read ``plan.json``; a folder of format 1 is brought up to date first, since its folders have other names."""
        path = self.path / PLAN
        if not path.exists():
            raise HoldfastError(f"{self.path} holds no comparison: give the folder of one")
        plan = read_file(path, StoredPlan, "start over with --overwrite")
        return self._upgrade(plan) if plan.format < PARTS_RENAMED else modern_plan(plan)

    def plan(self) -> Plan:
        """Build the plan that is stored here."""
        stored = self.stored()
        settings = {k: v for k, v in stored.settings.items() if v is not None and k not in stored.sweep}
        seeds = stored.seeds
        return make_plan(
            ComparisonRequest(
                stored.methods, settings, len(seeds), seeds[0], stored.sweep, stored.how, stored.own or {}, stored=True
            )
        )

    def result(self) -> Study:
        """Read ``compare.json``."""
        path = self.path / RESULT
        remedy = f"write it again with `holdfast compare --tables {self.path}`"
        study = read_file(path, Study, remedy)
        if not study.entries:
            raise HoldfastError(f"{path} is damaged, it has no entries: {remedy}")
        return checked_classes(modern_study(study) if study.format < FORMAT else study, path, remedy)

    def clear(self) -> None:
        """Delete the comparison, and nothing else that may be here."""
        for config in self.path.glob(f"*/seed-*/{CONFIG}"):
            RunFolder(config.parent).remove()
        for name in (PLAN, RESULT, *TABLES):
            (self.path / name).unlink(missing_ok=True)

    def _upgrade(self, old: StoredPlan) -> StoredPlan:
        """Bring a folder up to date. ``plan.json`` comes last, so that it is done again after an interruption."""
        plan = modern_plan(old)
        try:
            with FolderLock(self.path):
                for before, after in renamed_folders(old).items():
                    if (self.path / before).exists():
                        if (self.path / after).exists():
                            raise HoldfastError(
                                f"{self.path / before} is now called {after}, which exists too: move one of them away"
                            )
                        (self.path / before).rename(self.path / after)
                with contextlib.suppress(HoldfastError):  # no result yet, or one that is written again anyway
                    write_atomically(self.path / RESULT, json.dumps(to_json(self.result()), allow_nan=False) + "\n")
                self._write_stored(plan)
        except OSError as error:
            raise HoldfastError(
                f"cannot bring {self.path} up to date: {error.strerror}; make the folder writable"
            ) from error
        return plan

    def _write_stored(self, plan: StoredPlan) -> None:
        write_atomically(self.path / PLAN, json.dumps(to_json(plan), indent=1) + "\n")


def read_file(path: Path, kind: type[T], remedy: str) -> T:
    """Read a JSON file into a record; a file without ``format`` has format 1.

    Args:
        path: The file.
        kind: The record, ``Study`` or ``StoredPlan``.
        remedy: What to do if the file is damaged.

    Returns:
        The record, in the format that the file has.
    """
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HoldfastError(f"cannot read {path}: {error}; {remedy}") from error
    if isinstance(value, dict):
        value = {"format": 1} | value
        if isinstance(value["format"], int) and value["format"] > FORMAT:
            raise HoldfastError(
                f"{path} has format {value['format']}, but this version reads formats up to {FORMAT}: update Holdfast"
            )
        value = modern_keys(value)
    try:
        return from_json(kind, value)
    except JsonMismatch as error:
        raise HoldfastError(f"{path} is damaged, {error}: {remedy}") from error


def other_split_seed(stored: StoredPlan, asked: StoredPlan) -> Difference | None:
    """Return the difference if two comparisons differ in the seed of the split; without one it is the seed of a run."""
    seeds = [plan.settings.get("split_seed") for plan in (stored, asked)]
    before, now = ("seed" if seed is None else seed for seed in seeds)
    return None if before == now else Difference("split_seed", before, now)


def check_same_comparison(path: Path, stored: StoredPlan, asked: StoredPlan) -> None:
    """Raise an error unless ``asked`` is the stored comparison, possibly with more methods or seeds at the end."""
    another = f"{path} holds another comparison, with "
    remedy = ": choose another --out, or start over with --overwrite"
    found = other_split_seed(stored, asked) or first_difference(Config().changed(**stored.settings), asked.settings)
    if found:
        raise HoldfastError(f"{another}{found.name} = {found.stored}, not {found.asked}{remedy}")
    before, now = (stored.own if stored.own is not None else asked.own) or {}, asked.own or {}
    for name in ("data", "model", FACTORY):
        old, new = before.get(name, ""), now.get(name, "")
        if old != new:
            sources = [f"{name} from Python ({text})" if text else f"{name} given by name" for text in (old, new)]
            raise HoldfastError(f"{another}{sources[0]}, not {sources[1]}{remedy}")
    if stored.sweep != asked.sweep:
        axes = [f"{k}={','.join(value_to_text(k, v) for v in values)}" for k, values in stored.sweep.items()]
        sweep = "; ".join(axes) or "none"
        raise HoldfastError(f"{another}the sweep {sweep}{remedy}")
    lists: tuple[tuple[str, list[Any], list[Any]], ...] = (
        ("methods", stored.methods, asked.methods), ("seeds", stored.seeds, asked.seeds),
    )  # fmt: skip
    for name, first, longer in lists:
        if longer[: len(first)] != first:
            kept = ", ".join(map(str, first))
            raise HoldfastError(f"{another}the {name} {kept}; only more of them may be added at the end{remedy}")
