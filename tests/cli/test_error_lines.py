"""Errors and warnings: one line in a log, whole words in a terminal; a package that is missing is an error like any."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.cli.main import main

pytestmark = pytest.mark.usefixtures("elsewhere")
COMMANDS = sys.modules["holdfast.cli.main"].holdfast  # the group of all commands
LONG = (
    "holdfast: rmse does not fit classification; use one of accuracy, auroc, balanced_accuracy, calibration_error, "
    "log_loss, loss, macro_f1, precision, recall"
)
WARNING = "x.csv: label 'y' has the class 'NA': leave these samples out if it stands for a missing label"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Make stderr a terminal of this width."""

    def make(width: int) -> None:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(width))

    return make


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize("width", [40, 80])
def test_a_terminal_breaks_an_error_between_words(capsys, terminal, width: int):
    terminal(width)
    code, text = said(capsys, "run", "--metric", "rmse")
    assert code == 2
    assert max(map(len, text.splitlines())) <= width
    assert text.split() == LONG.split()


def test_a_log_has_the_error_in_one_line(capsys):
    assert said(capsys, "run", "--metric", "rmse") == (2, LONG + "\n")


def test_a_terminal_breaks_a_warning_between_words(capsys, terminal, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as outside of tests, where nobody has set up logging
    Path("x.csv").write_text("a,y\n" + "".join(f"{i % 7}.5,{'NA' if i % 2 else 'b'}\n" for i in range(20)))
    words = ("split", "--data", "csv('x.csv', label='y')", "--clients", "2")
    assert said(capsys, *words) == (0, WARNING + "\n")
    terminal(60)
    _, text = said(capsys, *words)
    assert max(map(len, text.splitlines())) <= 60
    assert text.split() == WARNING.split()


@pytest.mark.parametrize(("package", "installed_as"), [("plotly", "plotly"), ("sklearn", "scikit-learn")])
def test_a_package_that_is_missing_is_one_line(capsys, monkeypatch, package: str, installed_as: str):
    def command(*_: object, **__: object) -> None:
        monkeypatch.setitem(sys.modules, package, None)
        __import__(f"{package}.offline")

    monkeypatch.setattr(COMMANDS, "main", command)
    assert said(capsys, "report") == (2, f"holdfast: this needs the package {package}: pip install {installed_as}\n")


def test_a_module_of_ours_that_is_missing_is_a_bug(monkeypatch):
    monkeypatch.setattr(COMMANDS, "main", lambda *_, **__: __import__("holdfast.nowhere"))
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        main(["report"])
