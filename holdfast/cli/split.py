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
@settings("data", "data_dir", "split", "clients", "seed", "split_seed", "public", "imports")
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
    federation = federate(data, config.split, config.clients, config.deal_seed, config.public)
    federation.need_all_clients("holdfast split", "there is no picture of them")
    labels, groups, x = federation.strata, federation.strata_names, federation.scaled(data.x)
    classes = len(groups)
    dealt, names, title = federation.deal, federation.client_names, f"{data.name}, {federation.split}"
    if png is not None:
        try:
            split_picture.png(dealt, labels, classes, png, title=title, x=x, names=names, class_names=groups)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise HoldfastError(f"cannot write the picture {png}: {reason}; choose another --png") from error
    if as_json:
        head = {"data": config.data, "split": federation.split, "clients": federation.clients, "seed": federation.seed}
        click.echo(json.dumps(head | split_picture.record(dealt, labels, classes, x, names, groups)))
        return
    from rich.console import Console

    Console().print(split_picture.terminal(dealt, labels, classes, names, groups))
    if png is not None:
        click.echo(f"the picture is in {png}")
