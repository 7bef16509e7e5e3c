"""What past races found, to order the field of the next one. It never replaces a race."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from holdfast.advice.candidates import Candidate
from holdfast.advice.federation_look import FederationLook
from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_atomically
from holdfast.core.typed_json import JsonMismatch, from_json, to_json

FORMAT = 1
SHIPPED = "experience.json"  # in this folder of the package
VARIABLE = "HOLDFAST_EXPERIENCE"
NEAR = 5  # past races that count


@dataclass(frozen=True)
class PastRace:
    """One race.

    Attributes:
        data: The data set.
        split: How it was dealt.
        look: The figures of the federation, as ``FederationLook.vector`` has them.
        gains: How much better than FedAvg each method was after screening, as a share of the largest difference; by
            method.
    """

    data: str
    split: str
    look: list[float]
    gains: dict[str, float]


def own_file() -> Path:
    """Return the user's file of past races: ``$HOLDFAST_EXPERIENCE``, else one in the user's data folder."""
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "holdfast" / SHIPPED


def past_races() -> list[PastRace]:
    """Return the races that the library ships with, and those of the user."""
    return [*shipped_races(), *own_races()]


def shipped_races() -> list[PastRace]:
    """Return the races that the library ships with."""
    return races_of(json.loads((files("holdfast.advice") / SHIPPED).read_text(encoding="utf-8")))


def own_races() -> list[PastRace]:
    """Return the user's past races."""
    path = own_file()
    if not path.exists():
        return []
    try:
        return races_of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, JsonMismatch, KeyError, TypeError) as error:
        raise HoldfastError(f"cannot read the past races in {path}: {error}; delete the file") from error


def races_of(content: dict[str, Any]) -> list[PastRace]:
    """Read the content of a file of past races."""
    if content["format"] != FORMAT:
        raise ValueError(f"it has format {content['format']}, not {FORMAT}")
    return [from_json(PastRace, race) for race in content["races"]]


def remember(race: PastRace) -> None:
    """Add a race to the user's file; one of the same federation is replaced."""
    path = own_file()
    others = [past for past in own_races() if (past.data, past.look) != (race.data, race.look)]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps({"format": FORMAT, "races": to_json([*others, race])}, indent=1) + "\n")


def ordered(field: Sequence[Candidate], look: FederationLook, races: Sequence[PastRace]) -> list[Candidate]:
    """Return the field with what gained most on similar federations first; FedAvg stays in front.

    Gains are averaged over the nearest past races, weighted by nearness. A method without experience counts as if it
    gained nothing; equals keep their order.

    Args:
        field: The candidates, FedAvg first.
        look: The federation.
        races: Past races.

    Returns:
        The candidates in their new order.
    """
    here = look.vector()
    near = sorted(races, key=lambda race: math.dist(here, race.look))[:NEAR]

    def expected(candidate: Candidate) -> float:
        known = [(race, 1 / (0.1 + math.dist(here, race.look))) for race in near if candidate.method in race.gains]
        total = sum(weight for _, weight in known)
        return sum(weight * race.gains[candidate.method] for race, weight in known) / total if total else 0.0

    return [field[0], *sorted(field[1:], key=lambda candidate: -expected(candidate))]
