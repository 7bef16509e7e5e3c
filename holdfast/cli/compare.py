"""``holdfast compare METHOD...``: several methods on the same federations, cohorts and batches."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import given, settings
from holdfast.core.errors import HoldfastError
from holdfast.method.config import FIELDS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from holdfast.cli.terminal_table import FittedTable
    from holdfast.comparison.compare import Comparison

COMMON = tuple(name for name in FIELDS if name not in ("method", "seed"))
GIVEN = "holdfast.given"  # where the words of the command line are kept


class Remembers(click.Command):
    """A command that knows the words it was given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[GIVEN] = tuple(args)
        return super().parse_args(ctx, args)


@click.command("compare", cls=Remembers)
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

    from holdfast.cli.comparison_progress import watcher
    from holdfast.comparison.compare import compare, tabulate
    from holdfast.comparison.plan import sweep_from_text
    from holdfast.core.interrupts import stop_on_interrupt

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
        with stop_on_interrupt(console.print, "stopping after the rounds in progress") as stop:
            result = compare(
                methods, seeds=seeds, first_seed=first_seed, sweep=sweep_from_text(sweep), targets=wanted, jobs=jobs,
                out=out, overwrite=overwrite, light=light, watch=watcher(console, quiet), stop=stop,
                **values,
            )  # fmt: skip
    if not quiet and result.finished:
        show(result, console)
    if not result.finished:
        words = again(click.get_current_context().meta[GIVEN], result.folder, out is None)
        told = f"stopped; go on with: {words}\nwhat there is so far: holdfast report {shlex.quote(str(result.folder))}"
        console.print(told, highlight=False, soft_wrap=True, markup=False)
    if as_json and result.finished:
        click.echo(json.dumps(result.record))
    return 0 if result.finished else 130


def numbers(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise HoldfastError(f"--targets {text}: expected accuracies such as 0.8,0.9") from None


def again(given: Sequence[str], folder: Path, unnamed: bool) -> str:
    """The command as it was given, to go on: its folder is named, and what is in there is not overwritten.

    >>> again(["fedavg", "fedbug(0.4)", "--jobs", "2", "--overwrite"], Path("runs/a"), unnamed=True)
    "holdfast compare fedavg 'fedbug(0.4)' --jobs 2 --out runs/a"
    """
    words = [word for word in given if word != "--overwrite"]
    if unnamed:
        end = words.index("--") if "--" in words else len(words)
        words[end:end] = ["--out", str(folder)]
    return shlex.join(["holdfast", "compare", *words])


def show(result: Comparison, console: Console) -> None:
    """The end of a comparison, for people."""
    from rich.text import Text

    from holdfast.cli.terminal_table import fit
    from holdfast.comparison.study_folder import TABLES
    from holdfast.comparison.tables import describe, notes, tables

    found, without = result.record, list[str]()
    console.print(describe(found), highlight=False, soft_wrap=True, markup=False)
    for table in tables(found)[:3]:  # the files also have the accuracy by class
        console.print(Text(f"\n{table.title}", "bold"))
        fitted = fit(table, console.width)
        console.print(view(fitted))
        without += fitted.without
    if without:
        text = f"left out in so narrow a terminal: {', '.join(without)}; {result.folder / TABLES[0]} has them"
        console.print(text, highlight=False, soft_wrap=True, markup=False)
    console.print()
    for note in notes(found):
        console.print(note, highlight=False, markup=False)
    text = f"the comparison is in {result.folder}; see it: holdfast report {shlex.quote(str(result.folder))}"
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def view(fitted: FittedTable) -> Table:
    """A table with columns as wide as they were fitted: numbers stay whole, names and words may break."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from holdfast.cli.terminal_table import GAP

    made = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for heading, width in zip(fitted.table.head, fitted.widths, strict=True):
        made.add_column(heading, justify="right" if made.columns else "left", width=width, overflow="fold")
    for row in fitted.table.rows:
        made.add_row(*map(Text, row))
    return made
