"""Text in a terminal: lines break between words, names of methods between their parts, and commands can be copied."""

from __future__ import annotations

import re
import shutil
import textwrap
from typing import TYPE_CHECKING, TextIO

from holdfast.core.shell_words import continued

if TYPE_CHECKING:
    from rich.console import Console


def say(console: Console, text: str) -> None:
    """Print sentences, a line each: wrapped between words in a terminal, whole in a log."""
    for line in text.splitlines():
        _print(console, wrapped(line, console.width) if console.is_terminal else line)


def wrapped(text: str, width: int) -> str:
    """Wrap a sentence between words; a word that is longer than a line stays whole.

    >>> print(wrapped("the run is in runs/balanced-accuracy", 22))
    the run is in
    runs/balanced-accuracy
    """
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def for_stream(text: str, stream: TextIO) -> str:
    """Return a sentence as it is printed without a console: wrapped between words in a terminal, whole elsewhere."""
    return wrapped(text, shutil.get_terminal_size().columns) if stream.isatty() else text


def say_command(console: Console, text: str, command: str) -> None:
    """Print a command after what it does; on lines of its own in a terminal in which it does not fit beside it.

    Args:
        console: Where to print.
        text: What the command does.
        command: The command.
    """
    line = f"{text}: {command}"
    if not console.is_terminal or len(line) <= console.width:
        _print(console, line)
        return
    say(console, f"{text}:")
    _print(console, continued(command, console.width))


def _print(console: Console, text: str) -> None:
    """Print a text as it is."""
    console.print(text, highlight=False, markup=False, emoji=False, soft_wrap=True)


def folded(name: str, width: int) -> str:
    """Wrap a method's name after a plus or a space, and within a part only if it is longer than a line.

    >>> folded("fedbug(0.4)+scaffold", 13)
    'fedbug(0.4)+\\nscaffold'
    >>> folded("fedavg, split=dirichlet(0.3, balanced=true)", 16)
    'fedavg, split=\\ndirichlet(0.3,\\nbalanced=true)'
    """
    lines = [""]
    for piece in pieces(name, width):
        if lines[-1] and len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def pieces(name: str, width: int) -> list[str]:
    """Split a name into parts, and parts longer than a line further; punctuation stays at the ends."""
    parts = re.split(r"(?<=[+ ])", name)
    within = [re.split(r"(?<=[=(,])", part) if len(part.rstrip()) > width else [part] for part in parts]
    return [piece for split in within for piece in split]
