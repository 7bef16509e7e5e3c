"""A single run as a study: a comparison with one entry and one seed."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.comparison.plan import flags, notable_settings
from holdfast.comparison.result import EntryRuns, made, study_entry
from holdfast.comparison.stats import reach
from holdfast.comparison.stored_run import StoredRun
from holdfast.comparison.study_schema import ClientCounts, Study
from holdfast.core.errors import HoldfastError
from holdfast.method.config import Config
from holdfast.method.config_text import config_to_toml
from holdfast.runs.folder import RunFolder
from holdfast.runs.history import read_history, summarize
from holdfast.runs.provenance import made_of
from holdfast.runs.run_files import HISTORY, SPLIT, SUMMARY

TARGETS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # those that the run reached are shown


def study_of_run(folder: Path) -> Study:
    """Read the run in a folder, finished or as far as it is."""
    config = RunFolder(folder).stored()
    run = read_any_run(folder, config.seed)
    targets = [t for t in TARGETS if reach(run.history, t)[0] is not None]
    split = read_object(folder / SPLIT) if (folder / SPLIT).exists() else {}
    by_class = run.get("accuracy_by_class") or []
    return Study(
        **made([run]),
        command=run_command(config),
        settings=notable_settings(config, config.cohort_size if config.participation is None else None),
        seeds=[config.seed],
        targets=targets,
        classes=split.get("classes") or [str(c) for c in range(len(by_class))],
        split=ClientCounts(split.get("counts")),
        entries=[study_entry(EntryRuns(config.method, config.method, {}, {".": run}), None, targets)],
        config=config_to_toml(config),
        rounds_done=len(run.history),
    )


def read_any_run(folder: Path, seed: int) -> StoredRun:
    """Read a run with its summary, or with a summary of the rounds so far."""
    path = folder / HISTORY
    try:
        rounds = path.read_bytes().count(b"\n")
    except OSError as error:
        raise HoldfastError(f"cannot read {path}: {error.strerror}; give the folder of a run") from error
    records = read_history(path, rounds)
    if not records:
        raise HoldfastError(f"the run in {folder} has no rounds yet: report it after its first round")
    summary = summarize(records) | (read_object(folder / SUMMARY) if (folder / SUMMARY).exists() else {})
    return StoredRun(seed, [asdict(record) for record in records], summary, "", made_of(summary))


def run_command(config: Config) -> str:
    """Return the command that makes this run again."""
    return shlex.join(["holdfast", "run", config.method, *flags(config, ("method",))])


def read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HoldfastError(f"cannot read {path}: {error}; run it again") from error
    if not isinstance(value, dict):
        raise HoldfastError(f"{path} is damaged, it holds no JSON object: run it again")
    return value
