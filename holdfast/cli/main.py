"""``holdfast``: the list of commands, and how errors reach the user."""

from __future__ import annotations

import codecs
import importlib
import io
import logging
import sys

import click

from holdfast.cli.help import Whole
from holdfast.core.errors import HoldfastError, closest, unknown
from holdfast.core.os_errors import discard_output, in_one_line
from holdfast.core.terminal_text import for_stream

# command -> (module, one line of help); listed here so that --help imports none of them
COMMANDS = {
    "run": ("holdfast.cli.run", "Train a federation with a method."),
    "compare": ("holdfast.cli.compare", "Compare methods on the same federations, cohorts and batches."),
    "advise": ("holdfast.cli.advise", "Find out which method suits your data."),
    "tune": ("holdfast.cli.tune", "Search the best settings of methods, and judge them on fresh seeds."),
    "reproduce": ("holdfast.cli.reproduce", "Reproduce a paper's tables and compare with the published numbers."),
    "report": ("holdfast.cli.report", "Write an HTML report of a run or a comparison."),
    "predict": ("holdfast.cli.predict", "Predict new samples with the model of a run."),
    "export": ("holdfast.cli.export", "Write the model of a run for use without Holdfast."),
    "methods": ("holdfast.cli.methods", "List the methods, or describe one."),
    "split": ("holdfast.cli.split", "Show how a split distributes the data among clients."),
    "data": ("holdfast.cli.data", "List and download data sets."),
    "models": ("holdfast.cli.models", "List the networks."),
    "combinations": ("holdfast.cli.combinations", "Test which pairs of methods can be summed."),
    "deploy": ("holdfast.cli.deploy", "Run a federation on several machines with Flower."),
    "theory": ("holdfast.cli.theory", "Check a paper's analytical claims."),
    "bench": ("holdfast.cli.bench", "Measure how fast this machine is, compared with plain PyTorch."),
}

INSTALLED_AS = {"PIL": "pillow", "sklearn": "scikit-learn"}  # what pip calls packages that have another name


PRINTABLE = "holdfast-printable"  # what standard output does with characters that its encoding lacks


def printable(error: UnicodeError) -> tuple[str | bytes, int]:
    """Print names of files as they are, UTF-8 or not; write other characters that cannot be printed as ``\\u2713``."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


codecs.register_error(PRINTABLE, printable)


class WarningLines(logging.Handler):
    """Prints warnings to stderr, a line each in a log, wrapped between words in a terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(for_stream(record.getMessage(), sys.stderr), err=True)


class Lazy(Whole):
    """A group that imports a command only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in COMMANDS.items()])


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, help="Show the version with its commit, and exit.",
    callback=lambda context, _, asked: show_version(context) if asked else None,
)  # fmt: skip
def holdfast() -> None:
    """Federated learning that does not drift: methods for non-IID data, as sums of parts.

    Try: holdfast run "fedbug(0.4)+prox(0.01)"
    """


def show_version(context: click.Context) -> None:
    """Print the version, and end."""
    from holdfast.core.commit import version_line

    click.echo(version_line())
    context.exit()


def main(args: list[str] | None = None) -> None:
    """Run a command: bad input ends with one line and exit code 2, a diverged run with 1, Ctrl-C with 130."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=PRINTABLE)
    logging.lastResort = WarningLines(logging.WARNING)  # what prints warnings where nobody has set up logging
    try:
        status = holdfast.main(args, prog_name="holdfast", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        status = _complain("stopped", 130)
    except click.ClickException as error:
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            error.show()
            sys.exit(0)
        status = _complain(_usage_error(error), 2)
    except Exception as error:
        status = _expected(error)
    sys.exit(status if isinstance(status, int) else 0)


def _expected(error: Exception) -> int:
    """Return the exit code of an error that users can fix; any other is a bug and keeps its traceback."""
    if isinstance(error, HoldfastError):
        return _complain(str(error), error.status)
    if isinstance(error, OSError):
        discard_output()
        return 141 if isinstance(error, BrokenPipeError) else _complain(f"{in_one_line(error)}; check the path", 2)
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("holdfast"):
        package = error.name.partition(".")[0]
        return _complain(f"this needs the package {package}: pip install {INSTALLED_AS.get(package, package)}", 2)
    if isinstance(error, MemoryError):
        return _complain("out of memory: use a smaller model, cohort or batch", 2)
    raise error


def _usage_error(error: click.ClickException) -> str:
    """Word an error in the flags or arguments of a command like our own: with what exists, or where to find it."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    message = error.format_message().removeprefix("Got ").rstrip(".")
    if context is not None and isinstance(error, click.NoSuchOption) and error.option_name.startswith("--"):
        known = [name for option in context.command.params for name in option.opts if name.startswith("--")]
        if closest(error.option_name, known):
            return str(unknown("option", error.option_name, known))
        return f"unknown option {error.option_name!r}; see: {context.command_path} --help"
    return f"{message[0].lower()}{message[1:]}; see: {context.command_path if context else 'holdfast'} --help"


def _complain(message: str, status: int) -> int:
    click.echo(for_stream(f"holdfast: {' '.join(message.split())}", sys.stderr), err=True)
    return status
