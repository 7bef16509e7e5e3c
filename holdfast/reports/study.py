"""What a report is about, read from a folder: a comparison, or a single run in the same form."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.comparison.study_folder import PLAN, StudyFolder
from holdfast.comparison.unfinished import outgrown, so_far
from holdfast.core.errors import HoldfastError
from holdfast.method.config import FIELDS, Config
from holdfast.method.config_text import config_to_toml
from holdfast.reproduce.store import PAGE as TABLES
from holdfast.reproduce.store import RESULT as REPRODUCED
from holdfast.runs.folder import CONFIG, HISTORY, SPLIT, SUMMARY, RunFolder
from holdfast.runs.history import read_history, summarize
from holdfast.runs.provenance import made_of
from holdfast.training.round_record import RoundRecord

COMPARE = "compare.json"
FORMAT = 1
TARGETS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # for a single run: those that it reached are shown
BELOW = (f"*/{PLAN}", f"*/{CONFIG}", f"*/*/{PLAN}", f"*/*/{CONFIG}")  # where to look for something to report
NEEDED = ("settings", "seeds", "targets", "classes", "entries", "command")
OF_AN_ENTRY = ("label", "accuracy", "targets", "seconds", "bytes", "curves")


def read_study(folder: Path) -> dict[str, Any]:
    """The comparison or the run in a folder, in the form of ``compare.json``; finished, or as far as it is."""
    if (folder / COMPARE).exists():
        found = read_comparison(folder / COMPARE)
        grows = (folder / PLAN).exists() and outgrown(StudyFolder(folder).stored(), found)
        return so_far(StudyFolder(folder)) if grows else found
    if (folder / PLAN).exists():
        return so_far(StudyFolder(folder))
    if (folder / CONFIG).exists():
        return read_run(folder)
    raise HoldfastError(nothing_here(folder))


def nothing_here(folder: Path) -> str:
    """Why there is nothing to report in a folder, with what can be reported below it."""
    if not folder.is_dir():
        return f"{folder} is no folder: give the folder of a run or of a comparison"
    found = next((p.parent for what in BELOW for p in sorted(folder.glob(what))), None)
    example = f" `holdfast report {shlex.quote(str(found))}`" if found else ""
    if (folder / REPRODUCED).exists():
        single = f"; a single run can be reported, such as{example}" if found else ""
        return f"{folder} holds what holdfast reproduce made: its tables are in {folder / TABLES}{single}"
    below = f"; try{example}" if found else ""
    return (
        f"{folder} holds neither a run ({CONFIG} and {HISTORY}) nor a comparison ({COMPARE}, or {PLAN} until it is "
        f"finished){below}"
    )


def read_comparison(path: Path) -> dict[str, Any]:
    found = read_json(path)
    if found.get("format") != FORMAT:
        raise HoldfastError(f"{path} has format {found.get('format')}, not {FORMAT}: compare again with this version")
    lacking = [name for name in NEEDED if name not in found]
    lacking += [name for entry in found.get("entries", []) for name in OF_AN_ENTRY if name not in entry]
    if lacking or not found["entries"]:
        raise HoldfastError(f"{path} is damaged, it lacks {(lacking or ['entries'])[0]!r}: compare again")
    return found


def read_run(folder: Path) -> dict[str, Any]:
    """A run as a comparison of one method with one seed."""
    config = RunFolder(folder).stored()
    path = folder / HISTORY
    try:
        rounds = path.read_bytes().count(b"\n")
    except OSError as error:
        raise HoldfastError(f"cannot read {path}: {error.strerror}") from error
    records = read_history(path, rounds)
    if not records:
        raise HoldfastError(f"the run in {folder} has no rounds yet: there is nothing to report")
    summary = summarize(records) | (read_json(folder / SUMMARY) if (folder / SUMMARY).exists() else {})
    targets = [t for t in TARGETS if reach(records, t)[0] is not None]
    split = read_json(folder / SPLIT) if (folder / SPLIT).exists() else {}
    return {
        "format": FORMAT,
        **made_of(summary),
        "command": command(config),
        "config": config_to_toml(config),
        "settings": settings(config),
        "rounds_done": len(records),
        "seeds": [config.seed],
        "targets": targets,
        "classes": split.get("classes") or [str(c) for c in range(len(summary.get("accuracy_by_class") or []))],
        "split": split,
        "entries": [entry(config, records, summary, targets)],
    }


def entry(config: Config, records: list[RoundRecord], summary: dict[str, Any], targets: list[float]) -> dict[str, Any]:
    scored = [r for r in records if r.test_accuracy is not None]
    curves: dict[str, Any] = {"rounds": [r.round for r in scored]}
    for name in ("test_accuracy", "test_loss", "train_loss"):
        curves[name] = [[getattr(r, name) for r in scored]]
    reached = [
        dict(zip(("rounds", "seconds", "bytes"), ([v] for v in reach(records, t)), strict=True)) for t in targets
    ]
    return {
        "label": config.method,
        "method": config.method,
        "settings": {},
        "accuracy": {name: one(summary[f"{name}_accuracy"]) for name in ("final", "best", "last5")},
        "difference": None,
        "leaks_test_data": bool(summary.get("leaks_test_data")),
        "targets": [{"target": t, **found} for t, found in zip(targets, reached, strict=True)],
        **{name: one(summary[name]) for name in ("kappa", "rho", "seconds")},
        "bytes": one(summary["upload_bytes"] + summary["download_bytes"]),
        "by_class": {"mean": summary.get("accuracy_by_class")},
        "curves": curves,
        "drift": drift(records),
    }


def one(value: float | None) -> dict[str, Any]:
    """The mean and spread of a single value."""
    return {"mean": value, "std": None, "values": [value]}


def drift(records: list[RoundRecord]) -> dict[str, Any]:
    names = dict.fromkeys(name for r in records for name in r.drift)
    return {
        name: {
            "rounds": [r.round for r in records if name in r.drift],
            "values": [[r.drift[name] for r in records if name in r.drift]],
        }
        for name in names
    }


def reach(records: list[RoundRecord], target: float) -> tuple[int | None, float | None, int | None]:
    """Rounds, seconds and bytes until a test accuracy was reached first."""
    seconds, traffic = 0.0, 0
    for r in records:
        seconds, traffic = seconds + r.seconds, traffic + r.upload_bytes + r.download_bytes
        if r.test_accuracy is not None and r.test_accuracy >= target:
            return r.round, seconds, traffic
    return None, None, None


def settings(config: Config) -> dict[str, Any]:
    """What a reader must know of a run, and whatever differs from the defaults."""
    always = ("data", "split", "clients", "model", "rounds")
    changed = {k: v for k, v in asdict(config).items() if k in always or v != FIELDS[k].default}
    return {**changed, "cohort": config.cohort_size} if config.participation is None else changed


def command(config: Config) -> str:
    """The command that makes this run again."""
    words = ["holdfast", "run", config.method]
    for name, value in asdict(config).items():
        if name == "method" or value == FIELDS[name].default:
            continue
        flag = name.replace("_", "-")
        words += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return shlex.join(words)


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HoldfastError(f"cannot read {path}: {error}") from error
    if not isinstance(found, dict):
        raise HoldfastError(f"{path} is damaged: it holds no JSON object")
    return found
