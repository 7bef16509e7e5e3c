"""``holdfast bench``: how fast is this machine?"""

from __future__ import annotations

import argparse

import click

from holdfast.cli.help import Plain


def parser() -> argparse.ArgumentParser:
    from holdfast.bench import suites

    return suites.parser()


@click.command("bench", cls=Plain, parser=parser)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(args: tuple[str, ...]) -> None:
    """Measure this machine; ``python -m holdfast.bench`` does the same where there is PyTorch alone."""
    from holdfast.bench.suites import main

    main(args)
