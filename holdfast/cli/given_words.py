"""Commands that remember the words they were given, to print the command that resumes them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast.cli.switches import CommandWithSwitches
from holdfast.core.shell_words import command_line

WORDS = "holdfast.words"  # key of the words of the command line in click's context


class CommandWithWords(CommandWithSwitches):
    """A command that remembers the words it was given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = tuple(args)
        return super().parse_args(ctx, args)


def given_words() -> tuple[str, ...]:
    """Return the words of the current command line, after the name of the command."""
    words: tuple[str, ...] = click.get_current_context().meta[WORDS]
    return words


def command_again(name: str, given: Sequence[str], without: Sequence[str], more: Sequence[str]) -> str:
    """Return a command as it was given, with some flags changed.

    Args:
        name: The name of the command.
        given: The words that followed it.
        without: Flags to leave out.
        more: Words to add to the flags.

    Returns:
        The command, quoted for a shell.

    >>> command_again("compare", ["fedavg", "fedbug(0.4)", "--overwrite"], ["--overwrite"], ["--out", "runs/a b"])
    "holdfast compare fedavg 'fedbug(0.4)' --out 'runs/a b'"
    """
    words = [word for word in given if word not in without]
    end = words.index("--") if "--" in words else len(words)
    words[end:end] = more
    return command_line(["holdfast", *name.split(), *words])
