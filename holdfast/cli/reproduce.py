"""``holdfast reproduce PAPER``: the papers' tables, run again. The command itself is in ``holdfast.reproduce.main``."""

from __future__ import annotations

import argparse

import click

from holdfast.cli.help import Plain


def parser() -> argparse.ArgumentParser:
    from holdfast.reproduce import main

    return main.parser()


@click.command("reproduce", cls=Plain, parser=parser)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(context: click.Context, args: tuple[str, ...]) -> int:
    """Run a paper's tables, and put ours beside the published numbers."""
    from holdfast.reproduce.main import main

    return main(args, context.command_path)
