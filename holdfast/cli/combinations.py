"""``holdfast combinations``: run every pair of recipes and write the page."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("combinations")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("docs/combinations.md"), show_default=True, help="the page"
)
def command(out: Path) -> None:
    """Sum every pair of recipes, run it in both engines, and write which run and why the others do not."""
    from rich.console import Console
    from rich.progress import Progress

    from holdfast.comparison.pairs import attempt, page, pairs
    from holdfast.core.errors import HoldfastError

    if not out.parent.is_dir():
        raise HoldfastError(f"{out.parent} is no folder: choose another --out")
    found = {}
    with Progress(console=Console(stderr=True)) as bar:
        for pair in bar.track(pairs(), description="pairs"):
            found[pair] = attempt(*pair)
    out.write_text(page(found), encoding="utf-8")
    click.echo(f"{sum(not why for why in found.values())} of {len(found)} pairs run; the page is {out}")
