"""``holdfast compare METHOD...``: several methods on the same federations, cohorts and batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import given, settings
from holdfast.config import FIELDS
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.comparison.compare import Comparison

COMMON = tuple(name for name in FIELDS if name not in ("method", "seed"))


@click.command("compare")
@click.argument("methods", nargs=-1, metavar="METHOD...")
@settings(*COMMON)
@click.option("--seeds", type=int, default=5, show_default=True, help="runs of every method, a seed each")
@click.option("--first-seed", type=int, default=0, show_default=True, help="the seeds are this one and those after it")
@click.option("--sweep", multiple=True, metavar="NAME=A,B", help="try a setting's values; may be repeated")
@click.option("--targets", metavar="X,Y", help="accuracies to reach  [default: 50, 80 and 95% of the first one's best]")
@click.option("--jobs", type=int, default=1, show_default=True, help="runs at a time, each in a process of its own")
@click.option("--out", type=click.Path(path_type=Path), help="folder of the comparison  [default: a new one in runs/]")
@click.option("--overwrite", is_flag=True, help="replace the comparison in --out")
@click.option("--light", is_flag=True, help="delete the checkpoint of every run that is finished")
@click.option("--tables", type=click.Path(path_type=Path), help="only make the tables of this finished folder again")
@click.option("--config", type=click.Path(path_type=Path), help="TOML file of settings; flags override it")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="any setting by its name; may be repeated")
@click.option("--json", "as_json", is_flag=True, help="the last line of stdout is compare.json")
@click.option("--quiet", is_flag=True, help="no progress and no table")
def command(
    methods: tuple[str, ...],
    seeds: int,
    first_seed: int,
    sweep: tuple[str, ...],
    targets: str | None,
    jobs: int,
    out: Path | None,
    overwrite: bool,
    light: bool,
    tables: Path | None,
    config: Path | None,
    pairs: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> int:
    """Compare methods, each a sum of parts: every one on the same federations, cohorts and batches.

    The first METHOD is what the others are compared with, seed by seed. The same command with the same --out does only
    what is missing; with more methods or seeds at the end it adds them.
    """
    from rich.console import Console

    from holdfast.cli.live import watcher
    from holdfast.cli.progress import interruptible
    from holdfast.comparison.compare import compare, tabulate
    from holdfast.comparison.plan import sweep_from_text

    console = Console(stderr=True, quiet=quiet)
    wanted = None if targets is None else numbers(targets)
    values = given(flags, config, pairs)
    if tables is not None:
        if methods or values or sweep or out:
            raise HoldfastError("--tables FOLDER takes no methods and no settings: they are those of the folder")
        result = tabulate(tables, wanted)
    else:
        if not methods:
            raise HoldfastError('compare needs methods: holdfast compare fedavg "fedbug(0.4)"')
        with interruptible(console, "stopping after the rounds that are being played") as asked:
            result = compare(
                methods, seeds=seeds, first_seed=first_seed, sweep=sweep_from_text(sweep), targets=wanted, jobs=jobs,
                out=out, overwrite=overwrite, light=light, watch=watcher(console, quiet), stop=lambda: bool(asked),
                **values,
            )  # fmt: skip
    if not quiet:
        show(result, console)
    if as_json and result.finished:
        click.echo(json.dumps(result.record))
    return 0 if result.finished else 130


def numbers(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise HoldfastError(f"--targets {text}: expected accuracies such as 0.8,0.9") from None


def show(result: Comparison, console: Console) -> None:
    """The end of a comparison, for people."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from holdfast.comparison.tables import describe, notes, tables

    if not result.finished:
        command = result.plan.command(result.folder)
        console.print(f"stopped; go on with: {command}", highlight=False, soft_wrap=True, markup=False)
        return
    found = result.record
    console.print(describe(found), highlight=False, soft_wrap=True, markup=False)
    for table in tables(found)[:3]:  # the files also have the accuracy by class
        console.print(Text(f"\n{table.title}", "bold"))
        view = Table(box=SIMPLE_HEAD, pad_edge=False)
        view.add_column(table.head[0], overflow="fold", min_width=10)
        for heading in table.head[1:]:
            view.add_column(heading, justify="right")
        for row in table.rows:
            view.add_row(*map(Text, row))
        console.print(view)
    for note in notes(found):
        console.print(note, highlight=False, markup=False)
    text = f"the comparison is in {result.folder}; see it: holdfast report {result.folder}"
    console.print(text, highlight=False, soft_wrap=True, markup=False)
