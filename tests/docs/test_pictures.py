"""Pictures are what their scripts draw; the terminal shows a command that works, and the lines that it prints."""

from __future__ import annotations

import html
import json
import re
import shlex
from types import ModuleType

import pytest

from helpers.commands import good
from helpers.places import DOCS, ROOT
from holdfast.core.user_files import import_file

PICTURES = DOCS / "pictures"


def script(name: str) -> ModuleType:
    return import_file(ROOT / "website" / f"{name}.py")


def test_the_round_is_drawn_by_its_script() -> None:
    assert (PICTURES / "round.svg").read_text(encoding="utf-8") == script("round_picture").picture()


def test_the_results_are_those_of_the_study() -> None:
    draw = script("results_picture")
    study = json.loads((DOCS / "digits_study.json").read_text(encoding="utf-8"))
    assert (PICTURES / "results.svg").read_text(encoding="utf-8") == draw.picture(study)


def test_intervals_of_the_picture_by_their_equation() -> None:
    """Five differences 1 to 5 points: mean 3, deviation sqrt(2.5), half 2.776 sqrt(2.5 / 5)."""
    row, base = {"last5": [0.51, 0.52, 0.53, 0.54, 0.55]}, {"last5": [0.5] * 5}
    mean, half = script("results_picture").interval(row, base)
    assert (mean, half) == (pytest.approx(3), pytest.approx(2.776 * 0.5**0.5, rel=1e-3))


@pytest.mark.usefixtures("elsewhere")
def test_the_terminal_shows_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = script("terminal_picture")
    monkeypatch.setenv("COLUMNS", str(draw.COLUMNS))
    drawn = (PICTURES / "terminal.svg").read_text(encoding="utf-8")
    first, *lines = [html.unescape(line) for line in re.findall(r"<text [^>]*>(.*?)</text>", drawn)]
    assert first == f"$ {draw.COMMAND}"
    said = good(*shlex.split(draw.COMMAND)[1:], "--rounds", "2", "--seeds", "3", "--model", "linear")
    now = draw.shown([*said.err.splitlines(), *said.out.splitlines()])
    assert {words(line) for line in now if line.strip()} <= {words(line) for line in lines}


def words(line: str) -> tuple[str, ...]:
    """The words of a line that do not depend on numbers, on the network, or on the verdict."""
    plain = re.sub(r"\bmlp\b", "linear", line.split("  no difference")[0].split("  better")[0])
    return tuple(re.findall(r"[A-Za-z]{3,}", plain))
