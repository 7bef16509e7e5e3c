"""``holdfast bench``: how fast is this machine?"""

from __future__ import annotations

import click


@click.command("bench", add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(args: tuple[str, ...]) -> None:
    """Measure this machine; the options are those of ``python -m holdfast.bench``, which needs PyTorch alone."""
    from holdfast.bench.main import main

    main(args)
