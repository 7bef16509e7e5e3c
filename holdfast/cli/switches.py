"""Switches that may also have a value: ``--augment``, ``--augment flip(0.5)`` and ``--no-augment``."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from holdfast.method.config import FIELDS


class CommandWithSwitches(click.Command):
    """A command with such switches among its flags."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spelled_out(args))


def spelled_out(words: Sequence[str]) -> list[str]:
    """Give every switch of a command line its value.

    A word after a switch is its value, unless it is a flag or names a method.

    >>> spelled_out(["run", "fedavg", "--augment", "--no-augment-public", "--lr", "0.1"])
    ['run', 'fedavg', '--augment=standard', '--augment-public=none', '--lr', '0.1']
    >>> spelled_out(["run", "--augment", "fedbug(0.4)"]), spelled_out(["run", "--augment", "flip(0.4)"])
    (['run', '--augment=standard', 'fedbug(0.4)'], ['run', '--augment', 'flip(0.4)'])
    """
    switches = {f"--{name.replace('_', '-')}": f.metadata["words"] for name, f in FIELDS.items() if f.metadata["words"]}
    off = {f"--no-{flag[2:]}": f"{flag}={no}" for flag, (no, _) in switches.items()}
    end = words.index("--") if "--" in words else len(words)
    found = [off.get(word, word) for word in words[:end]]
    for at, word in enumerate(found):
        alone = at + 1 == len(found) or found[at + 1].startswith("-")
        if word in switches and (alone or names_a_method(found[at + 1])):
            found[at] = f"{word}={switches[word][1]}"
    return [*found, *words[end:]]


def names_a_method(word: str) -> bool:
    """Tell whether a word starts with the name of a part or a recipe."""
    from holdfast.method.part import parts  # slow to import, and rarely needed
    from holdfast.method.recipes import RECIPES

    name = re.match(r"\s*([A-Za-z_][\w.-]*)", word)
    return name is not None and (name[1] in RECIPES or name[1] in parts())
