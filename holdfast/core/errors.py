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
    near = same or difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {_either(near)}?" if near else f"known: {', '.join(names)}"
    return HoldfastError(f"unknown {kind} {quoted}{' ' * bool(where)}{where}; {hint}")


def _either(names: list[str]) -> str:
    """Join names as alternatives: a, b or c."""
    return " or ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
