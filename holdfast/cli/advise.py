"""``holdfast advise``: which method for this data?"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.given_words import CommandWithWords, command_again, given_words
from holdfast.cli.options import WholeNumber, given, settings
from holdfast.method.config import FIELDS, Config
from holdfast.method.held_out import HELD_OUT

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.advice.advise import Advice

COMMON = tuple(name for name in FIELDS if name != "method")


@dataclass(frozen=True)
class AdviseFlags:
    """The flags of the command that are not settings of a run."""

    budget: str
    methods: str | None
    jobs: int
    executor: str
    out: Path | None
    overwrite: bool
    no_experience: bool
    config: Path | None
    pairs: tuple[str, ...]
    as_json: bool
    quiet: bool


@click.command("advise", cls=CommandWithWords)
@settings(*COMMON, usual={"validation": HELD_OUT["advise"]})
@click.option("--budget", default="10m", show_default=True, help="what it may cost: 90s, 10m, 2h, or '2000 rounds'")
@click.option("--methods", metavar="A;B", help="methods to race, separated by semicolons  [default: a field of 19]")
@click.option("--jobs", type=WholeNumber(1), default=1, show_default=True, help="runs at a time, each in its process")
@click.option(
    "--executor", default="process", show_default=True, metavar="WHERE",
    help="where they run: process, ray, ray://host:port or slurm",
)  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="folder of the race  [default: a new one in runs/]")
@click.option("--overwrite", is_flag=True, help="replace the race in --out")
@click.option("--no-experience", is_flag=True, help="do not order the field by past races, nor remember this one")
@click.option("--config", type=click.Path(path_type=Path), help="TOML file of settings; flags override it")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="any setting by name; repeatable")
@click.option("--json", "as_json", is_flag=True, help="print advice.json as the last line of stdout")
@click.option("--quiet", is_flag=True, help="show no progress and no answer")
def command(**flags: Any) -> int:
    """Find out which method suits your data, and by how much it beats well-tuned FedAvg.

    A race: every method is tuned with the same few short runs, the best are raced seed by seed, and the winner must
    beat FedAvg on fresh seeds. Choices go by validation data alone. The same command with the same --out goes on.
    """
    from rich.console import Console

    from holdfast.advice.advise import ANSWER

    options = AdviseFlags(**{f.name: flags.pop(f.name) for f in fields(AdviseFlags)})
    values = given(flags, options.config, options.pairs)
    console = Console(stderr=True, quiet=options.quiet)
    result = race(values, options, console)
    if not result.finished:
        again = resume_command(result.folder, options)
        console.print(f"stopped; resume with: {again}", highlight=False, soft_wrap=True, markup=False)
        return 130
    if not options.quiet:
        show(result, console)
    if options.as_json:
        click.echo(json.dumps(json.loads((result.folder / ANSWER).read_text(encoding="utf-8"))))
    return 0


def race(values: dict[str, Any], options: AdviseFlags, console: Console) -> Advice:
    """Start or resume a race; the first Ctrl-C stops it after the current rounds."""
    from holdfast.advice.advise import advise
    from holdfast.advice.race_progress import RaceProgress
    from holdfast.comparison.labels import slug
    from holdfast.core.interrupts import stop_on_interrupt
    from holdfast.core.os_errors import kept_on_os_errors
    from holdfast.runs.folder import folder_for

    data = str(values.pop("data", Config().data))
    methods = [text.strip() for text in options.methods.split(";") if text.strip()] if options.methods else None
    with (
        folder_for(options.out, "advise", slug(data)) as folder,
        kept_on_os_errors(resume_command(folder, options)),
        RaceProgress(console) as watch,
        stop_on_interrupt(watch.say, "stopping after the current rounds") as stop,
    ):
        return advise(
            data, values.pop("model", None), budget=options.budget, methods=methods, jobs=options.jobs,
            executor=options.executor, out=folder, overwrite=options.overwrite,
            experience=not options.no_experience, watch=watch, stop=stop, **values,
        )  # fmt: skip


def resume_command(folder: Path, options: AdviseFlags) -> str:
    """Return the command as it was given, but with its folder and without --overwrite."""
    return command_again("advise", given_words(), ["--overwrite"], [] if options.out else ["--out", str(folder)])


def show(result: Advice, console: Console) -> None:
    """Print the answer, and write its page."""
    from holdfast.advice.answer_text import lines
    from holdfast.reports.advice_page import write_page

    assert result.answer is not None
    page = write_page(result.answer, result.folder)
    console.print()
    for line in lines(result.answer, look=False):  # the race has said what it saw
        command = line.strip() == result.answer.command  # in one piece, to be copied
        console.print(line, highlight=False, markup=False, soft_wrap=command)
    text = f"the answer is in {shlex.quote(str(result.folder))}; its page is {shlex.quote(str(page))}"
    console.print(f"\n{text}", highlight=False, soft_wrap=True, markup=False)
