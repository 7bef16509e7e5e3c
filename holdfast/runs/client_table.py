"""``clients.json``: the final score of every client on its own test samples, by name."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_atomically
from holdfast.core.typed_json import OMIT_NONE, JsonMismatch, from_json, to_json
from holdfast.runs.run_files import CLIENT_TABLE

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.metrics.metric import Metric
    from holdfast.training.client_scores import ClientScores

FORMAT = 1


@dataclass(frozen=True)
class ClientRow:
    """One client.

    Attributes:
        name: What it is called.
        score: The score of the served model, or of the client's own where BatchNorm layers stay at the clients; None
            where the metric is not defined.
        samples: The number of its test samples.
        personal: The score of its fine-tuned copy, with ``--personal``.
    """

    name: str
    score: float | None
    samples: int
    personal: float | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class ClientTable:
    """The clients of a run that have test samples, in the order of their numbers.

    Attributes:
        metric: What the scores are.
        rows: The clients.
        format: The format of ``clients.json``.
    """

    metric: str
    rows: list[ClientRow]
    format: int = FORMAT


def finite(value: float) -> float | None:
    """Return a number for a file; None if it is not finite."""
    return value if math.isfinite(value) else None


def client_table(
    scores: ClientScores, personal: Mapping[int, float], metric: Metric, federation: Federation
) -> ClientTable:
    """Make the table of a run.

    Args:
        scores: The scores of the clients.
        personal: The scores of their fine-tuned copies, if there are any.
        metric: What the run goes by.
        federation: Knows the names of the clients.

    Returns:
        The table.
    """
    copies = {i: finite(v) for i, v in personal.items()}
    found = zip(scores.ids, scores.values[metric.name], scores.samples, strict=True)
    return ClientTable(
        metric.name, [ClientRow(federation.name_of(i), finite(v), n, copies.get(i)) for i, v, n in found]
    )


def write_client_table(folder: Path, table: ClientTable) -> None:
    """Write the table into the folder of a run."""
    write_atomically(folder / CLIENT_TABLE, json.dumps(to_json(table)) + "\n")


def read_client_table(folder: Path) -> ClientTable | None:
    """Read the table of a run; None if it has none."""
    path, remedy = folder / CLIENT_TABLE, "delete it"
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        version = found.get("format") if isinstance(found, dict) else None
        if isinstance(version, int) and version > FORMAT:
            raise HoldfastError(f"{path} has format {version}, but this version reads up to {FORMAT}: upgrade Holdfast")
        return from_json(ClientTable, found)
    except OSError as error:
        raise HoldfastError(f"cannot read {path}: {error.strerror}; {remedy}") from error
    except JsonMismatch as error:
        raise HoldfastError(f"{path} is damaged, {error}: {remedy}") from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise HoldfastError(f"{path} is damaged, it is not valid JSON: {remedy}") from error
