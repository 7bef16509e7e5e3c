"""How ``--help`` looks: the same for all groups of commands, and nothing is cut short."""

from __future__ import annotations

import importlib

import click

from holdfast.core.errors import unknown


class Whole(click.Group):
    """A group that shows the first sentence of each of its commands, however long, and suggests names."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.list_commands(ctx):
            raise unknown("command", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        known = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, found.get_short_help_str(limit=1000)) for name, found in known if found])


def forwarded(name: str, module: str) -> click.Command:
    """Return a command that leaves its arguments, and its help, to ``main(args, program)`` of a module.

    Such a module has a parser of its own, which works where click is not installed.
    """

    @click.command(name, add_help_option=False, context_settings={"ignore_unknown_options": True})
    @click.argument("args", nargs=-1, type=click.UNPROCESSED)
    @click.pass_context
    def command(context: click.Context, args: tuple[str, ...]) -> int:
        status: int = importlib.import_module(module).main(args, context.command_path)
        return status

    return command
