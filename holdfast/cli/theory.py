"""``holdfast theory PAPER``: a paper's analytical claims, computed."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import given, settings
from holdfast.core.errors import HoldfastError, unknown

if TYPE_CHECKING:
    from holdfast.theory.claim import Claim
    from holdfast.theory.grid import Grid

PAPERS = ("fedbug", "fednlr", "fedagg", "fedmrur")


@click.command("theory")
@click.argument("paper", metavar="|".join(PAPERS))
@settings("data_dir")
@click.option("--png", type=click.Path(path_type=Path), help="draw a picture into this file")
@click.option("--json", "as_json", is_flag=True, help="print JSON instead of the table")
def command(paper: str, png: Path | None, as_json: bool, **flags: Any) -> None:
    """Compute a paper's analytical claims and show which of them hold.

    A claim that does not hold is a result, not a failure. FedNLR's experiments use MNIST and CIFAR-10 if they are in
    the data folder, and the digits otherwise.
    """
    if paper not in PAPERS:
        raise unknown("paper", paper, PAPERS)
    if png is not None and not png.absolute().parent.is_dir():
        raise HoldfastError(f"cannot write the picture {png}: there is no folder {png.parent}; create it first")
    module = importlib.import_module(f"holdfast.theory.{paper}")
    folder = given(flags).get("data_dir")
    data_dir = Path(folder) if folder else None
    claims: list[Claim] = module.claims(data_dir)
    tables: list[Grid] = module.tables(data_dir) if hasattr(module, "tables") else []
    if png is not None:
        module.picture(png, data_dir)
    if as_json:
        result = {"paper": paper, "claims": [asdict(c) for c in claims], "tables": [asdict(t) for t in tables]}
        click.echo(json.dumps(result, ensure_ascii=False))
        return
    print_claims(paper, claims)
    for table in tables:
        print_table(table)
    if png is not None:
        click.echo(f"the picture is in {png}")


def print_claims(paper: str, claims: list[Claim]) -> None:
    """Print the claims as a table, and how many of them hold."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from holdfast.theory.claim import shown

    view = Table("", "claim", title=f"Theory of {paper}", title_justify="left", show_lines=True)
    for heading in ("expected", "found"):
        view.add_column(heading, justify="right", no_wrap=True)
    for claim in claims:
        mark = Text("✓", "green") if claim.holds else Text("✗", "bold red")
        text = Text(claim.text).append(f"\n{claim.note}" if claim.note else "", style="dim")
        view.add_row(mark, text, shown(claim.expected), shown(claim.found))
    console = Console()
    console.print(view)
    held = sum(claim.holds for claim in claims)
    console.print(f"{held} of {len(claims)} claims hold", highlight=False)


def print_table(grid: Grid) -> None:
    """Print a table of numbers."""
    from rich.console import Console
    from rich.table import Table

    from holdfast.theory.claim import shown

    view = Table(title=grid.title, title_justify="left")
    for number, heading in enumerate(grid.heading):
        view.add_column(heading, justify="right" if number else "left")
    for row in grid.rows:
        view.add_row(*map(shown, row))
    Console().print(view)
