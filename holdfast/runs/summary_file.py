"""Write ``summary.json`` of a finished run; read it, and check it."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_atomically
from holdfast.core.typed_json import JsonMismatch, from_json
from holdfast.method.config import Config
from holdfast.runs.run_files import HISTORY, SUMMARY


@dataclass(frozen=True)
class SummaryFigures:
    """What the rest of the library reads in a summary; older versions wrote fewer of the optional figures."""

    rounds: int
    seconds: float
    upload_bytes: int
    download_bytes: int
    final: float | None
    best: float | None
    last5: float | None
    metric: str = "accuracy"
    task: str = "classification"
    best_round: int | None = None
    chosen_on: str = "test"
    final_scores: dict[str, float | None] | None = None
    floor: dict[str, float | None] | None = None
    stopped_early: bool | None = None
    kappa: float | None = None
    rho: float | None = None
    accuracy_by_class: list[float | None] | None = None
    personal_accuracy: float | None = None
    global_on_mix: float | None = None
    client_scores: dict[str, float | None] | None = None
    personal_client_scores: dict[str, float | None] | None = None
    leaks_test_data: bool | None = None
    epsilon: float | None = None
    delta: float | None = None
    noise_multiplier: float | None = None
    neighbours: str | None = None
    not_covered: list[str] | None = None
    exploded: bool | None = None
    exploded_round: int | None = None
    skipped_updates: int | None = None
    failed_updates: int | None = None
    far_updates: int | None = None
    virtual_seconds: float | None = None
    late_updates: int | None = None
    shortened_updates: int | None = None
    engine: str | None = None
    device: str | None = None
    date: str | None = None
    holdfast: str | None = None
    torch: str | None = None
    commit: str | None = None


OLD_NAMES = {"final_accuracy": "final", "best_accuracy": "best", "last5_accuracy": "last5"}  # of earlier versions


def identity(config: Config) -> dict[str, Any]:
    """Return what a summary says about the run itself."""
    names = ("method", "data", "split", "clients", "normalisation", "seed")
    return {name: getattr(config, name) for name in names} | {"split_seed": config.deal_seed}


CHECKSUM = "checksum"  # of all other figures; older versions wrote none


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Write the summary of a run, with its checksum."""
    text = json.dumps(summary | {CHECKSUM: checksum(summary)}, indent=2)
    write_atomically(folder / SUMMARY, text + "\n")


def checksum(summary: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(summary, sort_keys=True).encode())


def read_summary(folder: Path, remedy: str) -> dict[str, Any]:
    """Read the summary of a run; a damaged one is an error that ends with ``remedy``."""
    path = folder / SUMMARY
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise HoldfastError(f"cannot read {path}: {error.strerror}; {remedy}") from error
    except ValueError as error:
        raise HoldfastError(f"{path} is damaged, it is not valid JSON: {remedy}") from error
    if not isinstance(summary, dict):
        raise HoldfastError(f"{path} is damaged, it holds no JSON object: {remedy}")
    if CHECKSUM in summary and summary.pop(CHECKSUM) != checksum(summary):
        raise HoldfastError(f"{path} is damaged, it was changed since it was written: {remedy}")
    summary = {OLD_NAMES.get(name, name): value for name, value in summary.items()}
    known = {f.name for f in fields(SummaryFigures)}
    try:
        from_json(SummaryFigures, {name: value for name, value in summary.items() if name in known})
    except JsonMismatch as error:
        raise HoldfastError(f"{path} is damaged, {error}: {remedy}") from error
    return summary


def check_length(folder: Path, rounds: int, summary: dict[str, Any], remedy: str) -> None:
    """Raise an error if the history of a finished run has fewer or more rounds than its summary says."""
    if rounds != summary["rounds"]:
        raise HoldfastError(
            f"{folder / HISTORY} has {rounds} rounds, but the run finished after {summary['rounds']}: restore the "
            f"file, or {remedy}"
        )
