"""The history of a run: one JSON object per round, a line each, in ``history.jsonl``; and its summary."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError
from holdfast.core.typed_json import from_json
from holdfast.runs.explosion import exploded
from holdfast.training.round_record import RoundRecord

if TYPE_CHECKING:
    import pandas

SEVERAL_MACHINES = ("failed", "reset", "waiting", "overhead")  # left out of a line if there is nothing to say


def to_line(record: RoundRecord) -> str:
    """Write a record as a line of the history; numbers that are not finite become null."""
    values = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(record).items()}
    values = {k: v for k, v in values.items() if v or k not in SEVERAL_MACHINES}
    return json.dumps(values, allow_nan=False) + "\n"


def read_history(path: Path, rounds: int) -> list[RoundRecord]:
    """Read the first ``rounds`` records. Later lines, left by a round that was cut off, are ignored."""
    remedy = "restore the file, or start over with --overwrite"
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise HoldfastError(f"cannot read {path}: {error.strerror}; {remedy}") from error
    records: list[RoundRecord] = []
    for expected, line in zip(range(1, rounds + 1), lines, strict=False):
        try:
            record = from_json(RoundRecord, json.loads(line, object_hook=_client_numbers))
            good = record.round == expected
        except (ValueError, RecursionError):
            good = False
        if not good:
            raise HoldfastError(
                f"{path} is damaged at line {expected}: the last good round is {expected - 1}; {remedy}"
            )
        records.append(record)
    if len(records) < rounds:
        raise HoldfastError(
            f"{path} ends at round {len(records)}, its last good round, but the checkpoint is of round {rounds}: "
            f"{remedy}"
        )
    return records


def _client_numbers(found: dict[str, Any]) -> dict[Any, Any]:
    """Turn keys back into client numbers: JSON has no numbers as keys."""
    return {int(k) if k.isdecimal() else k: v for k, v in found.items()}


def summarize(records: Sequence[RoundRecord], guessing: float | None = None) -> dict[str, Any]:
    """Return final, best and mean-of-last-five accuracy, time and traffic of a run, and whether it exploded.

    ``guessing`` is the loss of a model that guesses, if it is known.
    """
    scores = [r.test_accuracy for r in records if r.test_accuracy is not None]
    last = scores[-5:]
    seconds = sum(r.seconds for r in records)
    megabytes = sum(r.upload_bytes + r.download_bytes for r in records) / 1e6
    final = scores[-1] if scores else None
    explosion = exploded([r.train_loss for r in records], guessing)
    return {
        "rounds": len(records),
        "final_accuracy": final,
        "best_accuracy": max(scores) if scores else None,
        "last5_accuracy": sum(last) / len(last) if last else None,
        "seconds": seconds,
        "upload_bytes": sum(r.upload_bytes for r in records),
        "download_bytes": sum(r.download_bytes for r in records),
        "kappa": final * 1e4 / seconds if final is not None and seconds else None,  # FNR-FL: accuracy per second
        "rho": final * 1e4 / megabytes if final is not None and megabytes else None,  # and per megabyte
        "skipped_updates": sum(len(r.skipped) for r in records),
        "failed_updates": sum(len(r.failed) for r in records),
        "exploded": explosion is not None,
        "exploded_round": explosion,
    }


def history_frame(records: Sequence[RoundRecord]) -> pandas.DataFrame:
    """Return records as a pandas frame: a row per round; drift is spread over columns such as ``drift_cosine``."""
    if find_spec("pandas") is None:
        raise HoldfastError("frame needs the package pandas: pip install pandas")
    import pandas

    rows = []
    for record in records:
        values = asdict(record)
        drift = values.pop("drift")
        values = {k: v for k, v in values.items() if v or k not in SEVERAL_MACHINES}
        rows.append(values | {f"drift_{name}": value for name, value in drift.items()})
    return pandas.DataFrame(rows)
