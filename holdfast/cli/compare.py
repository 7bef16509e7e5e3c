"""``holdfast compare METHOD...``: several methods on the same federations, cohorts and batches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.given_words import CommandWithWords, command_again, given_words
from holdfast.cli.options import WholeNumber, given, settings
from holdfast.core.errors import HoldfastError
from holdfast.core.shell_words import quoted
from holdfast.core.terminal_text import say, say_command
from holdfast.method.config import FIELDS, Config

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from holdfast.cli.terminal_table import FittedTable
    from holdfast.comparison.compare import Comparison
    from holdfast.comparison.study_schema import Study

COMMON = tuple(name for name in FIELDS if name not in ("method", "seed"))


@dataclass(frozen=True)
class CompareFlags:
    """The flags of the command that are not settings of a run."""

    seeds: int
    first_seed: int
    sweep: tuple[str, ...]
    targets: str | None
    jobs: int
    executor: str
    out: Path | None
    overwrite: bool
    light: bool
    together: bool | None
    tables: Path | None
    config: Path | None
    pairs: tuple[str, ...]
    as_json: bool
    quiet: bool


@click.command("compare", cls=CommandWithWords)
@click.argument("methods", nargs=-1, metavar="METHOD...")
@settings(*COMMON)
@click.option("--seeds", type=WholeNumber(), default=5, show_default=True, help="runs of every method, one seed each")
@click.option(
    "--first-seed", type=WholeNumber(), default=0, show_default=True, help="the first seed; the others follow it"
)
@click.option("--sweep", multiple=True, metavar="NAME=A,B", help="try several values of a setting; repeatable")
@click.option("--targets", metavar="X,Y", help="accuracies to reach  [default: 50, 80, 95% of the first method's best]")
@click.option(
    "--jobs", type=WholeNumber(), default=1, show_default=True, help="runs at a time, each in its own process"
)
@click.option(
    "--executor", default="process", show_default=True, metavar="WHERE",
    help="where they run: process, ray, ray://host:port or slurm",
)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="folder of the comparison  [default: a new one in runs/]")
@click.option("--overwrite", is_flag=True, help="replace the comparison in --out")
@click.option("--light", is_flag=True, help="delete the checkpoints of finished runs")
@click.option(
    "--together/--no-together",
    default=None,
    help="whether seeds, learning rates and numbers of parts share steps  [default: on a GPU]",
)
@click.option("--tables", type=click.Path(path_type=Path), help="only write the tables of this finished folder again")
@click.option("--config", type=click.Path(path_type=Path), help="TOML file of settings; flags override it")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="any setting by name; repeatable")
@click.option("--json", "as_json", is_flag=True, help="print compare.json as the last line of stdout")
@click.option("--quiet", is_flag=True, help="show no progress and no tables")
def command(methods: tuple[str, ...], **flags: Any) -> int:
    """Compare methods, each a sum of parts, on the same federations, cohorts and batches.

    The first METHOD is the reference: the others are compared with it, seed by seed. The same command with the same
    --out runs only what is missing; methods or seeds added at the end extend the comparison.
    """
    from rich.console import Console

    options = CompareFlags(**{f.name: flags.pop(f.name) for f in fields(CompareFlags)})
    values = given(flags, options.config, options.pairs)
    console = Console(stderr=True, quiet=options.quiet)
    result = tables_again(methods, values, options) if options.tables else run(methods, values, options, console)
    if result.study is not None and not options.quiet:
        show(result.study, result.folder, console)
    if not result.finished:
        say_command(console, "stopped; resume with", resume_command(given_words(), result.folder, options.out is None))
        say_command(console, "report on what is done so far", f"holdfast report {quoted(str(result.folder))}")
    if options.as_json and result.finished:
        click.echo(json.dumps(result.record))
    return 0 if result.finished else 130


def tables_again(methods: tuple[str, ...], values: dict[str, Any], options: CompareFlags) -> Comparison:
    """Write the tables of a finished comparison again."""
    from holdfast.comparison.compare import tabulate

    assert options.tables is not None
    if methods or values or options.sweep or options.out:
        raise HoldfastError("--tables FOLDER takes no methods and settings: the folder has them; leave them out")
    return tabulate(options.tables, numbers(options.targets))


def run(methods: tuple[str, ...], values: dict[str, Any], options: CompareFlags, console: Console) -> Comparison:
    """Start or resume a comparison; the first Ctrl-C stops it after the current rounds."""
    from holdfast.comparison.compare import compare
    from holdfast.comparison.comparison_progress import observer
    from holdfast.comparison.labels import slug
    from holdfast.comparison.plan import sweep_from_text
    from holdfast.core.interrupts import stop_on_interrupt
    from holdfast.core.os_errors import kept_on_os_errors
    from holdfast.runs.folder import folder_for

    if not methods:
        raise HoldfastError('compare needs methods: holdfast compare fedavg "fedbug(0.4)"')
    data = str(values.get("data", Config().data))
    with (
        folder_for(options.out, "compare", slug(data)) as folder,
        kept_on_os_errors(resume_command(given_words(), folder, options.out is None)),
        stop_on_interrupt(partial(say, console), "stopping after the current rounds") as stop,
    ):
        return compare(
            methods, seeds=options.seeds, first_seed=options.first_seed, sweep=sweep_from_text(options.sweep),
            targets=numbers(options.targets), jobs=options.jobs, executor=options.executor, out=folder,
            overwrite=options.overwrite, light=options.light, watch=observer(console, options.quiet), stop=stop,
            together=options.together, progress=False, **values,
        )  # fmt: skip


def numbers(text: str | None) -> list[float] | None:
    """Parse accuracies such as ``0.8,0.9``."""
    if text is None:
        return None
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise HoldfastError(f"--targets {text}: expected accuracies such as 0.8,0.9") from None


def resume_command(given: Sequence[str], folder: Path, unnamed: bool) -> str:
    """Return the command as it was given, but with its folder and without --overwrite.

    Args:
        given: The words of the command line.
        folder: The folder of the comparison.
        unnamed: Whether the command line did not name the folder.

    Returns:
        The command that resumes the comparison.

    >>> resume_command(["fedavg", "fedbug(0.4)", "--jobs", "2", "--overwrite"], Path("runs/a"), unnamed=True)
    "holdfast compare fedavg 'fedbug(0.4)' --jobs 2 --out runs/a"
    """
    return command_again("compare", given, ["--overwrite"], ["--out", str(folder)] if unnamed else [])


def show(study: Study, folder: Path, console: Console) -> None:
    """Print the tables and notes of a finished comparison."""
    from rich.text import Text

    from holdfast.cli.terminal_table import fit
    from holdfast.comparison.study_folder import TABLES
    from holdfast.comparison.tables import describe, notes, short_tables

    left_out = list[str]()
    say(console, describe(study))
    for table in short_tables(study):  # the files also have the accuracy by class
        console.print(Text(f"\n{table.title}", "bold"))
        fitted = fit(table, console.width)
        console.print(view(fitted))
        left_out += fitted.left_out
    if left_out:
        names = ", ".join(left_out)
        say(console, f"columns left out because the terminal is narrow: {names}; see {folder / TABLES[0]}")
    console.print()
    for note in notes(study):
        say(console, note)
    say_command(console, f"the comparison is in {folder}; view it with", f"holdfast report {quoted(str(folder))}")


def view(fitted: FittedTable) -> Table:
    """Return a table with the fitted column widths: numbers stay whole, names and words may wrap."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from holdfast.cli.terminal_table import GAP

    view = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for heading, width in zip(fitted.table.head, fitted.widths, strict=True):
        view.add_column(heading, justify="right" if view.columns else "left", width=width, overflow="fold")
    for row in fitted.table.rows:
        view.add_row(*map(Text, row))
    return view
