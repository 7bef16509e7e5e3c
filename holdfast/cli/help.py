"""How ``--help`` looks: the same for all commands, with nothing cut short."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import click


class Whole(click.Group):
    """A group that gives the first sentence on each of its commands, however long."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        known = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, found.get_short_help_str(limit=1000)) for name, found in known if found])


class Plain(click.Command):
    """A command whose arguments are left to a parser of ``argparse``, which works where click is not installed."""

    def __init__(self, *args: Any, parser: Callable[[], argparse.ArgumentParser], **more: Any) -> None:
        super().__init__(*args, **more)
        self.context_settings = {"ignore_unknown_options": True}
        self.parser = parser

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = [f"[{term(a)}]" for a in self.parser()._actions if not a.option_strings]
        formatter.write_usage(ctx.command_path, " ".join(["[OPTIONS]", *names]))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        parser = self.parser()
        rows = [(term(a), a.help or "") for a in parser._actions if a.option_strings and a.dest != "help"]
        ours = self.get_help_option(ctx)
        last = ours.get_help_record(ctx) if ours else None
        with formatter.section("Arguments"):
            formatter.write_dl([(term(a), a.help or "") for a in parser._actions if not a.option_strings])
        with formatter.section("Options"):
            formatter.write_dl([*rows, last] if last else rows)
        if parser.epilog:
            formatter.write_paragraph()
            formatter.write_text(parser.epilog)


def term(action: argparse.Action) -> str:
    """An option with the name of its value, or the name of an argument."""
    value = str(action.metavar or action.dest.upper())
    if not action.option_strings:
        return f"{value}..." if action.nargs == "*" else value
    return ", ".join(action.option_strings) + ("" if action.nargs == 0 else f" {value}")
