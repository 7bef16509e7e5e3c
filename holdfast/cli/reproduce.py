"""``holdfast reproduce PAPER``: the papers' tables, run again. See ``holdfast.reproduce.command``."""

from __future__ import annotations

import argparse

import click

from holdfast.cli.help import Plain


def parser() -> argparse.ArgumentParser:
    from holdfast.reproduce import command as reproducing

    return reproducing.parser()


@click.command("reproduce", cls=Plain, parser=parser)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(context: click.Context, args: tuple[str, ...]) -> int:
    """Run a paper's tables, and put ours beside the published numbers."""
    from holdfast.reproduce.command import main

    return main(args, context.command_path)
