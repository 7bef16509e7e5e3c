"""A search on disk: ``tune_plan.json``, trials, a run folder per trial and fresh seed, and at the end ``tune.*``."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from holdfast.comparison.part_sweeps import value_to_text
from holdfast.core.errors import HoldfastError
from holdfast.core.files import ASIDE, refuse_file, write_atomically
from holdfast.core.folder_lock import LOCK
from holdfast.core.typed_json import JsonMismatch, from_json, to_json
from holdfast.method.config import Config
from holdfast.runs.folder import RunFolder
from holdfast.runs.resume import first_difference
from holdfast.runs.run_files import CONFIG
from holdfast.tuning.trial_store import TRIALS
from holdfast.tuning.tune_schema import TUNE_FORMAT, StoredTunePlan, TuneStudy

TUNE_PLAN, TUNE_RESULT, TUNE_TABLES, TUNE_PICTURE = "tune_plan.json", "tune.json", "tune.md", "tune.png"
START_OVER = "choose another --out, or start over with --overwrite"
R = TypeVar("R", StoredTunePlan, TuneStudy)


class TuneFolder:
    """The folder of one search.

    Attributes:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self, asked: StoredTunePlan, overwrite: bool) -> None:
        """Raise an error unless the folder is new, or holds this very search."""
        refuse_file(self.path, "a search")
        if (self.path / TUNE_PLAN).exists():
            if not overwrite:
                check_same_search(self.path, self.stored(), asked)
        elif self.path.exists() and any(p.name not in (LOCK, TUNE_PLAN + ASIDE) for p in self.path.iterdir()):
            raise HoldfastError(f"{self.path} is not empty and holds no search of tune: choose another --out")

    def stored(self) -> StoredTunePlan:
        """Read ``tune_plan.json``."""
        if not (self.path / TUNE_PLAN).exists():
            raise HoldfastError(f"{self.path} holds no search of tune: check --out")
        return read_record(self.path / TUNE_PLAN, StoredTunePlan, "start over with --overwrite")

    def result(self) -> TuneStudy:
        """Read ``tune.json``."""
        return read_record(self.path / TUNE_RESULT, TuneStudy, "run the same command again to write it again")

    def write_plan(self, plan: StoredTunePlan) -> None:
        """Write ``tune_plan.json``."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / TUNE_PLAN, json.dumps(to_json(plan), indent=1) + "\n")

    def write_result(self, study: TuneStudy, tables: str, picture: bytes) -> None:
        """Write ``tune.json``, the tables and the picture."""
        write_atomically(self.path / TUNE_PICTURE, picture)
        write_atomically(self.path / TUNE_TABLES, tables)
        write_atomically(self.path / TUNE_RESULT, json.dumps(to_json(study), allow_nan=False) + "\n")

    def clear(self) -> None:
        """Delete the search, and nothing else that may be here."""
        for pattern in (f"*/trial-*/{CONFIG}", f"*/best/seed-*/{CONFIG}"):
            for config in self.path.glob(pattern):
                RunFolder(config.parent).remove()
        for name in (TRIALS, f"{TRIALS}-journal", TUNE_PLAN, TUNE_RESULT, TUNE_TABLES, TUNE_PICTURE):
            (self.path / name).unlink(missing_ok=True)


def read_record(path: Path, kind: type[R], remedy: str) -> R:
    """Read a JSON file into a record.

    Args:
        path: The file.
        kind: The record.
        remedy: What to do if the file is damaged.

    Returns:
        The record.
    """
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HoldfastError(f"cannot read {path}: {error}; {remedy}") from error
    found = value.get("format") if isinstance(value, dict) else None
    if isinstance(found, int) and found > TUNE_FORMAT:
        raise HoldfastError(
            f"{path} has format {found}, but this version reads formats up to {TUNE_FORMAT}: update Holdfast"
        )
    try:
        return from_json(kind, value)
    except JsonMismatch as error:
        raise HoldfastError(f"{path} is damaged, {error}: {remedy}") from error


def check_same_search(path: Path, stored: StoredTunePlan, asked: StoredTunePlan) -> None:
    """Raise an error unless two searches are the same.

    Args:
        path: The folder of the stored one.
        stored: The search on disk.
        asked: The search that is wanted now.
    """
    another = f"{path} holds another search, with "
    if stored.methods != asked.methods:
        raise HoldfastError(f"{another}the methods {', '.join(stored.methods)}: {START_OVER}")
    found = first_difference(Config().changed(**stored.settings), asked.settings)
    if found:
        raise HoldfastError(f"{another}{found.name} = {found.stored}, not {found.asked}: {START_OVER}")
    for method, axes in stored.spaces.items():
        if axes != asked.spaces.get(method):
            raise HoldfastError(f"{another}the ranges {'; '.join(map(str, axes))} of {method}: {START_OVER}")
    for f in fields(StoredTunePlan):
        before, now = getattr(stored, f.name), getattr(asked, f.name)
        if f.name not in ("settings", "format") and before != now:
            texts = [value_to_text("", v) if isinstance(v, int | str) else f"{v}" for v in (before, now)]
            raise HoldfastError(f"{another}{f.name.replace('_', ' ')} {texts[0]}, not {texts[1]}: {START_OVER}")
