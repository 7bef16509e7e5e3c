"""``holdfast run METHOD``: train a federation."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import given, settings
from holdfast.cli.switches import CommandWithSwitches
from holdfast.core.errors import HoldfastError
from holdfast.core.shell_words import quoted
from holdfast.method.config import Config
from holdfast.runs.folder import RunFolder, folder_for

if TYPE_CHECKING:
    from holdfast.runs.run_progress import RunProgress
    from holdfast.runs.run_result import Result


@click.command("run", cls=CommandWithSwitches)
@click.argument("method", required=False)
@settings()
@click.option("--out", type=click.Path(path_type=Path), help="folder of the run  [default: a new one in runs/]")
@click.option("--resume", is_flag=True, help="resume the run in --out, with the settings it was started with")
@click.option("--overwrite", is_flag=True, help="replace the run in --out")
@click.option("--config", type=click.Path(path_type=Path), help="TOML file of settings; flags override it")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="any setting by name; repeatable")
@click.option("--json", "as_json", is_flag=True, help="print the summary as one JSON object in the last line of stdout")
@click.option("--quiet", is_flag=True, help="show no progress and no summary")
def command(
    method: str | None,
    out: Path | None,
    resume: bool,
    overwrite: bool,
    config: Path | None,
    pairs: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> int:
    """Train a federation with METHOD, a sum of parts such as "fedbug(0.4)+feddyn(0.01)".

    The run is kept in a folder: its config, a line per round in history.jsonl, a checkpoint, a summary.
    """
    from holdfast.core.interrupts import stop_on_interrupt
    from holdfast.core.os_errors import kept_on_os_errors
    from holdfast.runs.run import run
    from holdfast.runs.run_progress import RunProgress

    values = given({**flags, "method": method}, config, pairs)
    if resume and out is None:
        raise HoldfastError("--resume needs the folder of the run: add --out")
    if resume and overwrite:
        raise HoldfastError("--resume and --overwrite cannot be used together: use one of them")
    if resume and out is not None:
        values.setdefault("method", RunFolder(out).stored().method)
    name = values.pop("method", Config().method)
    if not isinstance(name, str):
        raise HoldfastError(f"method must be text such as 'fedbug(0.4)+prox', not {name}")
    progress, data = RunProgress(name, quiet), str(values.get("data", Config().data))
    with (
        folder_for(out, name, data) as folder,
        kept_on_os_errors(f"holdfast run --resume --out {quoted(str(folder))}"),
        stop_on_interrupt(progress.say, "stopping after this round") as stop,
        progress,
    ):
        result = run(
            name, out=folder, resume=resume, overwrite=overwrite, on_start=partial(progress.start, out=folder),
            on_round=progress.round, stop=stop, progress=False, **values,
        )  # fmt: skip
    if not quiet:
        show(result, progress)
    if as_json:
        click.echo(json.dumps(result.summary))
    return 0 if result.finished else 130


def show(result: Result, progress: RunProgress) -> None:
    """Print the end of a run."""
    from holdfast.cli.score_table import positive_of, score_lines
    from holdfast.core.terminal_text import say, say_command
    from holdfast.runs.run_progress import say_where

    s, console = result.summary, progress.console
    for line in ending(result):
        say(console, line)
    for line in score_lines(s, result.task.floor, positive_of(result.task, result.classes)):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    for line in remarks(result):
        say(console, line)
    if result.finished:
        say_where(console, s["out"])
    else:
        say_command(console, "stopped; to resume", f"holdfast run --resume --out {quoted(s['out'])}")


def ending(result: Result) -> list[str]:
    """Return the lines about the final score, and about why the run ended early if it did."""
    from holdfast.runs.history import best_text
    from holdfast.runs.run_progress import early_end

    s, lines = result.summary, list[str]()
    if s["final"] is not None:
        rounds = f"{s['rounds']} round{'s' * (s['rounds'] != 1)}"
        scores = min(5, sum(bool(r.test) for r in result.history))
        lines.append(
            f"{s['metric']} {s['final']:.4f} ({best_text(s)}; mean of the last {scores} "
            f"{s['last5']:.4f}) after {rounds} and {s['seconds']:.1f} s; "
            f"{s['upload_bytes'] / 1e6:.2f} MB up, {s['download_bytes'] / 1e6:.2f} MB down"
        )
    return [*lines, *early_end(s, result.config.stop_after)]


def remarks(result: Result) -> list[str]:
    """Return the lines below the scores: copies of the clients, scores by client, and warnings."""
    from holdfast.runs.run_progress import explosion, on_the_clock, over_clients, privacy

    s, lines = result.summary, list[str]()
    if "personal_accuracy" in s:
        lines.append(
            f"after fine-tuning at each client: accuracy {s['personal_accuracy']:.4f} on its own mix of "
            f"classes (global model: {s['global_on_mix']:.4f})"
        )
    lines += [*over_clients(s, result.table), *on_the_clock(s), *privacy(s), *explosion(s)]
    return lines + ["this run LEAKS TEST DATA: its accuracy means nothing"] * bool(s.get("leaks_test_data"))
