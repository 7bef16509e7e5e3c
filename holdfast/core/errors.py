"""The error that users see as one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HoldfastError(ValueError):
    """Something the user can fix. The message names the offender, what was expected, and the remedy."""

    status = 2  # the exit code of the command


def unknown(kind: str, name: str, known: Iterable[str]) -> HoldfastError:
    """Return the error for a name that does not exist, with the closest names that do.

    >>> print(unknown("split", "dirichle", ["iid", "dirichlet"]))
    unknown split 'dirichle'; did you mean dirichlet?
    """
    names = sorted(known)
    if name.lower() in names:
        return HoldfastError(f"unknown {kind} {name!r}; did you mean {name.lower()}?")
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"
    return HoldfastError(f"unknown {kind} {name!r}; {hint}")
