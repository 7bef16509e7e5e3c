"""``holdfast split``: how a split distributes the data over the clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from holdfast.cli.options import given, settings
from holdfast.core.errors import HoldfastError
from holdfast.method.config import Config


@click.command("split")
@settings("data", "data_dir", "split", "clients", "seed", "public", "imports")
@click.option("--png", type=click.Path(path_type=Path), help="also write the picture to this file")
@click.option("--json", "as_json", is_flag=True, help="print JSON instead of the picture")
def command(png: Path | None, as_json: bool, **flags: Any) -> None:
    """Show how a split distributes the data: samples by client and class, sizes, and how much the clients differ."""
    from holdfast.data.federation import federate
    from holdfast.data.sources import load
    from holdfast.reports import split_picture
    from holdfast.runs.code_files import located, recorded
    from holdfast.runs.file_imports import import_parts

    config = recorded(Config().changed(**given(flags)))
    import_parts(config)
    data = load(located(config).data, Path(config.data_dir) if config.data_dir else None)
    federation = federate(data, config.split, config.clients, config.seed, config.public)
    federation.need_all_clients("holdfast split", "there is no picture of them")
    labels, classes, x = data.y.numpy(), federation.classes, federation.scaled(data.x)
    if png is not None:
        try:
            split_picture.png(federation.deal, labels, classes, png, title=f"{data.name}, {config.split}", x=x)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise HoldfastError(f"cannot write the picture {png}: {reason}; choose another --png") from error
    if as_json:
        head = {"data": config.data, "split": config.split, "clients": config.clients, "seed": config.seed}
        click.echo(json.dumps(head | split_picture.record(federation.deal, labels, classes, x)))
        return
    from rich.console import Console

    Console().print(split_picture.terminal(federation.deal, labels, classes))
    if png is not None:
        click.echo(f"the picture is in {png}")
