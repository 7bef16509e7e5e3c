"""The error that users see as one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HoldfastError(ValueError):
    """Something the user can fix. The message names the offender, what was expected, and the remedy.

    Attributes:
        status: The exit code of the command.
    """

    status = 2


LONGEST = 40  # characters of a name that an error quotes
ALIKE = 0.6  # how similar a suggested name must be, from 0 to 1
NEARLY = 0.1  # how much less similar than the first a further suggestion may be
COMMON = ("--", "fed")  # beginnings that many names share and that say nothing


def unknown(kind: str, name: str, known: Iterable[str], where: str = "") -> HoldfastError:
    """Return the error for a name that does not exist, with the closest names that do.

    Args:
        kind: What the name should name: "split", "setting", ...
        name: The name as given.
        known: The names that exist.
        where: Where it should exist, such as "in my.toml" or "of prox".

    Returns:
        The error, to be raised.

    >>> print(unknown("split", "dirichle", ["iid", "dirichlet"]))
    unknown split 'dirichle'; did you mean dirichlet?
    """
    names = sorted(known)
    quoted = repr(name) if len(name) <= LONGEST else f"{name[:LONGEST]!r}..."
    same = [name.lower()] if name.lower() in names else []
    near = same or closest(name, names)
    hint = f"did you mean {_either(near)}?" if near else f"known: {', '.join(names)}"
    return HoldfastError(f"unknown {kind} {quoted}{' ' * bool(where)}{where}; {hint}")


def closest(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three names that may be meant, the closest first."""
    scores = {other: _similarity(name.lower(), other) for other in sorted(known)}
    enough = max(ALIKE if len(name) > 2 else 0.5, max(scores.values(), default=0) - NEARLY)
    near = [other for other, score in scores.items() if score >= enough]
    return sorted(near, key=lambda other: (-scores[other], -_same_start(name, other)))[:3]


def _similarity(name: str, known: str) -> float:
    for start in COMMON:
        if name.startswith(start) and known.startswith(start):
            name, known = name.removeprefix(start), known.removeprefix(start)
    return difflib.SequenceMatcher(None, name, known).ratio()


def _same_start(name: str, known: str) -> int:
    """Count the letters at the start that are the same."""
    return next((i for i, (a, b) in enumerate(zip(name, known, strict=False)) if a != b), min(len(name), len(known)))


def _either(names: list[str]) -> str:
    """Join names as alternatives: a, b or c."""
    return " or ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
