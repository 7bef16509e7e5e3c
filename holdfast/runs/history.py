"""The history of a run: one JSON object per round, a line each, in ``history.jsonl``; and its summary."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError
from holdfast.core.typed_json import from_json
from holdfast.runs.early_stopping import best_round, scores
from holdfast.runs.explosion import exploded
from holdfast.training.round_record import RoundRecord

if TYPE_CHECKING:
    import pandas

    from holdfast.metrics.metric import Metric

# Left out of a line if there is nothing to say.
LEFT_OUT = (
    "validation", "clients", "far", "epsilon", "virtual_seconds", "away", "late", "shortened", "failed", "reset",
    "waiting", "overhead",
)  # fmt: skip
OLD_SCORES = {"test_accuracy": "accuracy", "test_loss": "loss"}  # keys of earlier versions


def to_line(record: RoundRecord) -> str:
    """Write a record as a line of the history; numbers that are not finite become null."""
    values = {k: v for k, v in asdict(record).items() if v or k not in LEFT_OUT}
    return json.dumps(_finite(values), allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
            record = from_json(RoundRecord, _modern(json.loads(line, object_hook=_client_numbers)))
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


def _modern(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of an earlier version as this one writes it; such a line had accuracy and loss alone."""
    if not isinstance(line, dict) or not OLD_SCORES.keys() <= line.keys():
        return line
    scores = {new: line.pop(old) for old, new in OLD_SCORES.items()}
    return line | {"test": {name: v for name, v in scores.items() if v is not None}}


def _client_numbers(found: dict[str, Any]) -> dict[Any, Any]:
    """Turn keys back into client numbers: JSON has no numbers as keys."""
    return {int(k) if k.isdecimal() else k: v for k, v in found.items()}


def summarize(records: Sequence[RoundRecord], metric: Metric, guessing: float | None = None) -> dict[str, Any]:
    """Return the final score, that of the best round and the mean of the last five, time and traffic of a run.

    Args:
        records: The history.
        metric: What the run goes by.
        guessing: The loss of a model that guesses, if it is known.

    Returns:
        The figures. The best round is chosen by validation data if there are any, else by test data.
    """
    curve = scores(records, metric.name, "test")
    chosen_on = "validation" if any(r.validation for r in records) else "test"
    best = best_round(scores(records, metric.name, chosen_on), metric)
    last = [value for _, value in curve][-5:]
    seconds = sum(r.seconds for r in records)
    megabytes = sum(r.upload_bytes + r.download_bytes for r in records) / 1e6
    final = last[-1] if last else None
    accuracy = final if metric.name == "accuracy" else None
    explosion = exploded([r.train_loss for r in records if r.trained], guessing)
    return {
        "rounds": len(records),
        "metric": metric.name,
        "final": final,
        "best": dict(curve).get(best) if best is not None else None,
        "best_round": best,
        "chosen_on": chosen_on,
        "last5": sum(last) / len(last) if last else None,
        "final_scores": dict(records[-1].test) if records else {},
        "seconds": seconds,
        "upload_bytes": sum(r.upload_bytes for r in records),
        "download_bytes": sum(r.download_bytes for r in records),
        "kappa": accuracy * 1e4 / seconds if accuracy is not None and seconds else None,  # FNR-FL: accuracy per second
        "rho": accuracy * 1e4 / megabytes if accuracy is not None and megabytes else None,  # and per megabyte
        "skipped_updates": sum(len(r.skipped) for r in records),
        "failed_updates": sum(len(r.failed) for r in records),
        "far_updates": sum(len(r.far) for r in records),
        **on_the_clock(records),
        "exploded": explosion is not None,
        "exploded_round": explosion,
    }


def on_the_clock(records: Sequence[RoundRecord]) -> dict[str, Any]:
    """Return the time of a run on its virtual clock and how many updates were late; empty if it has none."""
    if not any(r.virtual_seconds is not None for r in records):
        return {}
    return {
        "virtual_seconds": sum(r.virtual_seconds or 0.0 for r in records),
        "late_updates": sum(len(r.late) for r in records),
        "shortened_updates": sum(len(r.shortened) for r in records),
    }


def best_text(summary: Mapping[str, Any]) -> str:
    """Say what the best score of a run is, and by which data its round was chosen.

    >>> best_text({"best": 0.5, "best_round": 7, "chosen_on": "validation"})
    'best 0.5000 in round 7, chosen on validation data'
    """
    score = "none" if summary["best"] is None else f"{summary['best']:.4f}"
    where = "" if summary.get("best_round") is None else f" in round {summary['best_round']}"
    return f"best {score}{where}, chosen on {summary.get('chosen_on', 'test')} data"


def history_frame(records: Sequence[RoundRecord]) -> pandas.DataFrame:
    """Return records as a pandas frame: a row per round, with columns such as ``test_accuracy``
    and ``drift_cosine``."""
    if find_spec("pandas") is None:
        raise HoldfastError("frame needs the package pandas: pip install pandas")
    import pandas

    rows = []
    for record in records:
        rows.append({k: v for k, v in record.flat().items() if v or k not in LEFT_OUT})
    return pandas.DataFrame(rows)
