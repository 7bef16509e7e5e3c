"""``holdfast data``: list the data sets and download them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from holdfast.cli.help import Whole

folder = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="folder of the data sets  [default: $HOLDFAST_DATA, else the user's cache]",
)


@click.group("data", cls=Whole)
def command() -> None:
    """List and download data sets."""


@command.command("list")
@folder
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def list_(data_dir: Path | None, as_json: bool) -> None:
    """List every data set with its size, or with the files that are missing."""
    from holdfast.core.terminal_text import say
    from holdfast.data.loading import data_folder
    from holdfast.data.source import shortened
    from holdfast.data.sources import listing

    rows = listing(data_dir)
    if as_json:
        click.echo(json.dumps([asdict(r) | {"folder": str(r.folder)} for r in rows]))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Column, Table

    console, root = Console(markup=False, emoji=False), data_folder(data_dir)
    say(console, f"data folder: {root}")
    numbers = (Column(name, justify="right", no_wrap=True) for name in ("training", "test"))
    where = Column("folder", overflow="fold")
    table = Table(Column("name", no_wrap=True), *numbers, where, box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for r in rows:
        folder = r.folder.relative_to(root) if r.folder.is_relative_to(root) else r.folder
        lacks = f" lacks {shortened(r.missing, most=2)}" if r.missing else ""
        table.add_row(r.name, _count(r.train), _count(r.test), r.problem or f"{folder}{lacks}")
    console.print(table)


@command.command("fetch")
@click.argument("name")
@folder
@click.option("--quiet", is_flag=True, help="show no progress")
def fetch_(name: str, data_dir: Path | None, quiet: bool) -> None:
    """Download the data set NAME, verify and unpack it. An interrupted download resumes where it stopped."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from holdfast.data.fetch import fetch

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True, quiet=quiet)) as bar:
        tasks: dict[str, object] = {}

        def show(file: str, done: int, total: int) -> None:
            task = tasks.setdefault(file, None) or bar.add_task(file, total=total or None)
            tasks[file] = task
            bar.update(task, completed=done)  # type: ignore[arg-type]

        place = fetch(name, data_dir, show)
    click.echo(f"{name} is in {place}")


def _count(n: int | None) -> str:
    return f"{n:,}" if n else "-"
