"""Lines in a terminal break between words, and a command that is printed can be typed."""

from __future__ import annotations

import shlex
from io import StringIO

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from holdfast.core.shell_words import command_line, continued, quoted
from holdfast.core.terminal_text import say, say_command

WORDS = st.lists(st.text("ab'\"$`\\! (),=\nö-", max_size=12), min_size=1, max_size=12)
SENTENCE = "balanced_accuracy 0.7164 (best 0.7063 in round 1, chosen on validation data) after 4 rounds and 1.9 s"
COMMAND = "holdfast compare fedavg \"fedbug(0.4)\" --data \"csv('h.csv', label='y')\" --rounds 30 --out runs/hospitals"


def console(terminal: bool, width: int = 80) -> tuple[Console, StringIO]:
    out = StringIO()
    return Console(file=out, force_terminal=terminal, width=width, color_system=None), out


@given(WORDS)
def test_a_shell_reads_back_the_words(words: list[str]) -> None:
    assert shlex.split(command_line(words)) == words


def typed(lines: str) -> list[str]:
    """The words of a command that goes on after each backslash at the end of a line, as a shell reads it."""
    return shlex.split(lines.replace("\\\n", ""))


@settings(max_examples=50)
@given(st.lists(st.text("ab'\"$`\\! (),=ö-", max_size=12), min_size=1, max_size=12), st.integers(8, 60))
def test_a_shell_joins_the_lines_of_a_command(words: list[str], width: int) -> None:
    assert typed(continued(command_line(words), width)) == words


def test_single_quotes_stay_readable() -> None:
    assert quoted("csv('a.csv', label='y')") == "\"csv('a.csv', label='y')\""
    assert quoted("it's $5") == """'it'"'"'s $5'"""
    assert quoted("runs/a") == "runs/a"


def test_no_word_is_broken() -> None:
    for width in (20, 40, 80):
        lines, out = console(True, width)
        say(lines, SENTENCE)
        assert max(map(len, out.getvalue().splitlines())) <= width
        assert out.getvalue().split() == SENTENCE.split()


def test_a_log_has_a_line_per_sentence() -> None:
    lines, out = console(False)
    say(lines, f"{SENTENCE}\n{SENTENCE}")
    say_command(lines, "resume with", COMMAND)
    assert out.getvalue() == f"{SENTENCE}\n{SENTENCE}\nresume with: {COMMAND}\n"


def test_a_command_that_does_not_fit_can_be_copied() -> None:
    lines, out = console(True)
    say_command(lines, "resume with", COMMAND)
    lead, _, command = out.getvalue().partition("\n")
    assert lead == "resume with:"
    assert max(map(len, command.splitlines())) <= 80
    assert typed(command) == shlex.split(COMMAND)
    lines, out = console(True)
    say_command(lines, "see it", "holdfast report r")
    assert out.getvalue() == "see it: holdfast report r\n"
