"""``holdfast tune METHOD...``: the best setting of every method, with the same budget for all."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.compare import COMMON, view
from holdfast.cli.given_words import CommandWithWords, command_again, given_words
from holdfast.cli.options import WholeNumber, given, settings
from holdfast.core.errors import HoldfastError
from holdfast.method.config import Config
from holdfast.method.held_out import HELD_OUT

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.tuning.tune import Tuning
    from holdfast.tuning.tune_schema import TuneStudy


@dataclass(frozen=True)
class TuneFlags:
    """The flags of the command that are not settings of a run."""

    trials: int | None
    budget: int | None
    search: tuple[str, ...]
    sampler: str
    reduction: int
    seeds: int
    first_seed: int
    jobs: int
    executor: str
    out: Path | None
    resume: bool
    overwrite: bool
    light: bool
    config: Path | None
    pairs: tuple[str, ...]
    as_json: bool
    quiet: bool


@click.command("tune", cls=CommandWithWords)
@click.argument("methods", nargs=-1, metavar="METHOD...")
@settings(*COMMON, usual={"validation": HELD_OUT["tune"]})
@click.option("--trials", type=WholeNumber(), help="settings to try for every method  [default: 27]")
@click.option("--budget", type=WholeNumber(), help="instead of --trials: rounds that the search of a method may take")
@click.option(
    "--search",
    multiple=True,
    metavar="NAME=RANGE",
    help="where to search: 'lr=0.01..1 log', 'fedbug.share=0..1', batch=16,32; repeatable  [default: the ranges of "
    "lr, epochs, batch and of the parts: see holdfast methods NAME]",
)
@click.option("--sampler", default="tpe", show_default=True, metavar="tpe|grid|random", help="what proposes settings")
@click.option(
    "--reduction",
    type=WholeNumber(),
    default=3,
    show_default=True,
    help="of so many trials at a rung, one continues; 1: all run to the end",
)
@click.option("--seeds", type=WholeNumber(), default=5, show_default=True, help="fresh seeds that judge the best")
@click.option(
    "--first-seed", type=WholeNumber(), default=0, show_default=True, help="seed of the search; the fresh ones follow"
)
@click.option(
    "--jobs", type=WholeNumber(), default=1, show_default=True, help="runs at a time, each in its own process"
)
@click.option(
    "--executor", default="process", show_default=True, metavar="WHERE",
    help="where they run: process, ray, ray://host:port or slurm",
)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="folder of the search  [default: a new one in runs/]")
@click.option("--resume", is_flag=True, help="resume the search in --out; methods and settings are those of the folder")
@click.option("--overwrite", is_flag=True, help="replace the search in --out")
@click.option("--light", is_flag=True, help="delete the checkpoints of the runs on fresh seeds, too")
@click.option("--config", type=click.Path(path_type=Path), help="TOML file of settings; flags override it")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="any setting by name; repeatable")
@click.option("--json", "as_json", is_flag=True, help="print tune.json as the last line of stdout")
@click.option("--quiet", is_flag=True, help="show no progress and no tables")
def command(methods: tuple[str, ...], **flags: Any) -> int:
    """Search the best setting of every METHOD on validation data, and judge it on test data with fresh seeds.

    Every method has the same budget. What you set, by a flag or within a sum such as prox(0.1), is not searched. Trials
    run to a rung of rounds, and the best continue. The same command with the same --out runs only what is missing.

    Try: holdfast tune fedavg "fedbug+prox" --rounds 10 --trials 9 --out tuned
    """
    from rich.console import Console

    options = TuneFlags(**{f.name: flags.pop(f.name) for f in fields(TuneFlags)})
    values = given(flags, options.config, options.pairs)
    console = Console(stderr=True, quiet=options.quiet)
    result = resumed(methods, values, options, console) if options.resume else run(methods, values, options, console)
    if result.study is not None and not options.quiet:
        show(result.study, result.folder, console)
    if not result.finished:
        text = f"stopped; resume with: {resume_command(options, result.folder)}"
        console.print(text, highlight=False, soft_wrap=True, markup=False)
    if options.as_json and result.finished:
        click.echo(json.dumps(result.record))
    return 0 if result.finished else 130


def resumed(methods: tuple[str, ...], values: dict[str, Any], options: TuneFlags, console: Console) -> Tuning:
    """Resume the search in a folder."""
    from holdfast.comparison.plan_schema import ExecutionOptions
    from holdfast.core.interrupts import stop_on_interrupt
    from holdfast.core.os_errors import kept_on_os_errors
    from holdfast.tuning.tune import resume_tune
    from holdfast.tuning.tune_progress import tune_observer

    if options.out is None:
        raise HoldfastError("--resume needs the folder of the search: add --out FOLDER")
    if methods or values or options.search or options.trials or options.budget or options.overwrite:
        raise HoldfastError("--resume takes no methods, settings or budget: the folder has them; leave them out")
    with (
        kept_on_os_errors(resume_command(options, options.out)),
        stop_on_interrupt(console.print, "stopping after the current rounds") as stop,
    ):
        how = ExecutionOptions(None, options.jobs, options.light, options.executor)
        return resume_tune(options.out, how, tune_observer(console, options.quiet), stop)


def run(methods: tuple[str, ...], values: dict[str, Any], options: TuneFlags, console: Console) -> Tuning:
    """Start or resume a search; the first Ctrl-C stops it after the current rounds."""
    from holdfast.comparison.labels import slug
    from holdfast.core.interrupts import stop_on_interrupt
    from holdfast.core.os_errors import kept_on_os_errors
    from holdfast.runs.folder import folder_for
    from holdfast.tuning.search_space import search_from_texts
    from holdfast.tuning.tune import tune
    from holdfast.tuning.tune_progress import tune_observer

    if not methods:
        raise HoldfastError('tune needs methods: holdfast tune fedavg "fedbug+prox"')
    data = str(values.get("data", Config().data))
    with (
        folder_for(options.out, "tune", slug(data)) as folder,
        kept_on_os_errors(resume_command(options, folder)),
        stop_on_interrupt(console.print, "stopping after the current rounds") as stop,
    ):
        return tune(
            methods, trials=options.trials, budget=options.budget, search=search_from_texts(options.search),
            sampler=options.sampler, reduction=options.reduction, seeds=options.seeds, first_seed=options.first_seed,
            jobs=options.jobs, executor=options.executor, out=folder, overwrite=options.overwrite, light=options.light,
            watch=tune_observer(console, options.quiet), stop=stop, progress=False, **values,
        )  # fmt: skip


def resume_command(options: TuneFlags, folder: Path) -> str:
    """Return the command as it was given, but with its folder and without --overwrite."""
    return command_again("tune", given_words(), ["--overwrite"], ["--out", str(folder)] if options.out is None else [])


def show(study: TuneStudy, folder: Path, console: Console) -> None:
    """Print the tables, notes and commands of a finished search."""
    from rich.text import Text

    from holdfast.cli.terminal_table import fit
    from holdfast.tuning.tune_folder import TUNE_PICTURE, TUNE_TABLES
    from holdfast.tuning.tune_tables import tune_notes, tune_tables, tune_title

    console.print(tune_title(study), highlight=False, soft_wrap=True, markup=False)
    left_out = list[str]()
    for table in tune_tables(study):
        fitted = fit(table, console.width)
        console.print(Text(f"\n{table.title}", "bold"))
        console.print(view(fitted))
        left_out += fitted.left_out
    if left_out:
        text = f"columns left out because the terminal is narrow: {', '.join(left_out)}; see {folder / TUNE_TABLES}"
        console.print(text, highlight=False, soft_wrap=True, markup=False)
    console.print()
    for note in tune_notes(study):
        console.print(note, highlight=False, markup=False)
    for entry in study.entries:
        if entry.command:
            console.print(f"train it: {entry.command}", highlight=False, soft_wrap=True, markup=False)
    text = f"the search is in {folder}; its picture: {folder / TUNE_PICTURE}"
    console.print(text, highlight=False, soft_wrap=True, markup=False)
