"""Commands that also run without click and rich: their parser, and how they end."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from holdfast.core.errors import HoldfastError
from holdfast.core.os_errors import discard_output, in_one_line


class WholeWords(argparse.HelpFormatter):
    """Breaks lines of help between words alone, so that what has a hyphen can be copied."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class PlainParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, with help that looks like that of the other commands."""

    def __init__(self, program: str, arguments: str, **more: Any) -> None:
        super().__init__(program, f"%(prog)s [OPTIONS] {arguments}", add_help=False, formatter_class=WholeWords, **more)
        self._positionals.title, self._optionals.title = "Arguments", "Options"
        self.add_argument("-h", "--help", action="help", help="Show this message and exit.")

    def error(self, message: str) -> NoReturn:
        if ": must be " in message:  # of whole_number, which does not know the option
            raise HoldfastError(message.removeprefix("argument ").replace(": must be ", " must be ", 1))
        raise HoldfastError(f"{message}; see: {self.prog} --help")

    def format_help(self) -> str:
        return super().format_help().replace("usage: ", "Usage: ", 1)


def whole_number(text: str) -> int:
    """Read the value of an option that is a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text}") from None


def run_plain(main: Callable[[Sequence[str], str], int], program: str) -> NoReturn:
    """Run a command outside of ``holdfast``: bad input ends with one line and exit code 2, Ctrl-C with 130."""
    try:
        status = main(sys.argv[1:], program)
        sys.stdout.flush()
    except HoldfastError as error:
        print(f"holdfast: {' '.join(str(error).split())}", file=sys.stderr)
        status = error.status
    except BrokenPipeError:
        discard_output()
        status = 141
    except OSError as error:
        discard_output()
        print(f"holdfast: {in_one_line(error)}; check the path", file=sys.stderr)
        status = 2
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
