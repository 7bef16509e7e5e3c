"""``holdfast combinations``: run every pair of methods and write docs/combinations.md."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.options import import_all, imports


@click.command("combinations")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("docs/combinations.md"),
    show_default=True,
    help="the file to write",
)
@imports
def command(out: Path, imports: tuple[str, ...]) -> None:
    """Sum every pair of methods, run it on both engines, and write which pairs run and why the others do not."""
    from rich.console import Console
    from rich.progress import Progress

    from holdfast.comparison.pairs import attempt, page, pairs, trust_table
    from holdfast.core.errors import HoldfastError

    if not out.parent.is_dir():
        raise HoldfastError(f"the folder {out.parent} does not exist: create it, or choose another --out")
    import_all(imports)
    outcomes = {}
    with Progress(console=Console(stderr=True)) as bar:
        for pair in bar.track(pairs(), description="pairs"):
            outcomes[pair] = attempt(*pair)
    out.write_text(f"{page(outcomes)}\n{trust_table()}", encoding="utf-8")
    click.echo(f"{sum(not why for why in outcomes.values())} of {len(outcomes)} pairs run; wrote {out}")
