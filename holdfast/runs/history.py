"""What happened in each round: one JSON object per line of ``history.jsonl``."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError


@dataclass(frozen=True)
class Record:
    """One round. Accuracies are fractions of 1; they are None in rounds without evaluation."""

    round: int
    test_accuracy: float | None
    test_loss: float | None
    train_loss: float | None
    seconds: float
    upload_bytes: int
    download_bytes: int
    cohort: list[int]
    skipped: list[int] = field(default_factory=list)  # clients whose update was not finite
    drift: dict[str, float] = field(default_factory=dict)  # with --drift, in rounds with evaluation
    # On several machines only, and left out of the line where there is nothing to say:
    failed: dict[int, str] = field(default_factory=dict)  # clients that did not come back, and why
    reset: list[int] = field(default_factory=list)  # clients whose parts had lost their state and began anew
    waiting: float | None = None  # seconds of the round spent waiting for other machines
    overhead: float | None = None  # seconds of our own code beside training: the server's, and the slowest node's

    def line(self) -> str:
        known = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}
        known = {k: v for k, v in known.items() if v or k not in ("failed", "reset", "waiting", "overhead")}
        return json.dumps(known, allow_nan=False) + "\n"


def read_history(path: Path, upto: int) -> list[Record]:
    """The records of rounds 1..upto. Later lines, left by a round that was cut off, are passed over."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise HoldfastError(f"cannot read {path}: {error}") from error
    records: list[Record] = []
    for expected, line in zip(range(1, upto + 1), lines, strict=False):
        try:
            record = Record(**json.loads(line, object_hook=_client_numbers))
            good = record.round == expected
        except (ValueError, TypeError):
            good = False
        if not good:
            raise HoldfastError(
                f"{path} is damaged at line {expected}: the last good round is {expected - 1}; restore the file, "
                "or start anew with --overwrite"
            )
        records.append(record)
    if len(records) < upto:
        raise HoldfastError(
            f"{path} ends at round {len(records)}, its last good round, but the checkpoint is of round {upto}: "
            "restore the file, or start anew with --overwrite"
        )
    return records


def _client_numbers(found: dict[str, Any]) -> dict[Any, Any]:
    """JSON has no numbers as names: give those of clients back."""
    return {int(k) if k.isdecimal() else k: v for k, v in found.items()}


def summarize(records: Sequence[Record]) -> dict[str, Any]:
    """Final, best and mean-of-last-five accuracy, time and traffic of a run."""
    scores = [r.test_accuracy for r in records if r.test_accuracy is not None]
    last = scores[-5:]
    seconds = sum(r.seconds for r in records)
    megabytes = sum(r.upload_bytes + r.download_bytes for r in records) / 1e6
    final = scores[-1] if scores else None
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
    }
