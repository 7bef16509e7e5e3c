"""Commands as a user types them into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

ACTIVE = frozenset('"$`\\!\n')  # what a shell reads as something else, even between double quotes


def quoted(word: str) -> str:
    """Quote a word for a shell; with double quotes where it has single quotes itself, so that it stays readable.

    >>> print(quoted("fedbug(0.4)"), quoted("csv('a.csv', label='y')"))
    'fedbug(0.4)' "csv('a.csv', label='y')"
    """
    return f'"{word}"' if "'" in word and not ACTIVE & set(word) else shlex.quote(word)


def command_line(words: Iterable[str]) -> str:
    """Return words as one line for a shell.

    >>> command_line(["holdfast", "report", "runs/a b"])
    "holdfast report 'runs/a b'"
    """
    return " ".join(map(quoted, words))


def continued(command: str, width: int) -> str:
    """Break a command between its words into lines that a shell reads as one.

    >>> print(continued("holdfast compare fedavg prox --rounds 30 --out runs/a", 32))
    holdfast compare fedavg prox \\
      --rounds 30 --out runs/a
    """
    lines = [""]
    for word in map(quoted, shlex.split(command)):
        if lines[-1].strip() and len(f"{lines[-1]} {word} \\") > width:
            lines.append("  ")
        lines[-1] += word if not lines[-1].strip() else f" {word}"
    return " \\\n".join(lines)
