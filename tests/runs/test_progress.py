"""Progress from Python: silent by default, a bar with ``progress=True``, by itself in a notebook."""

from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import holdfast
from helpers.exact_errors import raises_exactly

pytestmark = pytest.mark.usefixtures("elsewhere")
FAST: dict[str, Any] = {"rounds": 3, "steps": 1, "cohort": 2, "model": "linear"}


class Cell:
    """The output of a notebook's cell: what was shown, and what replaced it."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, content: dict[str, str], raw: bool, display_id: bool) -> Cell:
        self.update(content, raw)
        return self

    def update(self, content: dict[str, str], raw: bool) -> None:
        assert raw
        self.shown.append(content["text/plain"])


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    """Pretend that this is the kernel of a notebook."""
    found, shell, tools = Cell(), ModuleType("IPython"), ModuleType("IPython.display")
    shell.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    tools.display = found.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", tools)
    return found


def test_a_run_is_silent_unless_asked(capfd: pytest.CaptureFixture[str]):
    holdfast.run("fedavg", **FAST)
    assert capfd.readouterr() == ("", "")
    holdfast.run("fedavg", progress=True, **FAST)
    said = capfd.readouterr()
    assert said.out == ""
    assert "fedavg on digits, dirichlet(0.3) over 20 clients, 2 per round" in said.err
    assert "3/3" in said.err
    assert "accuracy 0." in said.err


def test_followers_are_called_as_well(capfd: pytest.CaptureFixture[str]):
    seen: list[int] = []
    done: list[int] = []
    holdfast.run(
        "fedavg", progress=True, on_start=lambda _, n: done.append(n), on_round=lambda r: seen.append(r.round), **FAST
    )
    assert (done, seen) == ([0], [1, 2, 3])
    assert "3/3" in capfd.readouterr().err


def test_a_notebook_shows_a_run_by_itself(cell: Cell):
    result = holdfast.run("fedavg", **FAST)
    assert len(cell.shown) == 4
    assert [f"{n}/3" in text for n, text in enumerate(cell.shown)] == [True] * 4
    assert f"accuracy {result.score.accuracy:.4f}" in cell.shown[-1]
    assert all("\x1b" not in text and "\n" not in text for text in cell.shown)


def test_a_notebook_can_be_kept_silent(cell: Cell, capfd: pytest.CaptureFixture[str]):
    holdfast.run("fedavg", progress=False, **FAST)
    holdfast.compare(["fedavg"], seeds=1, progress=False, **FAST)
    assert cell.shown == []
    assert capfd.readouterr() == ("", "")


def test_a_shell_of_ipython_is_not_a_notebook(cell: Cell, capfd: pytest.CaptureFixture[str]):
    sys.modules["IPython"].get_ipython = lambda: object()  # type: ignore[attr-defined]
    holdfast.run("fedavg", **FAST)
    assert cell.shown == []
    assert capfd.readouterr() == ("", "")


def test_a_comparison_shows_its_table_in_a_notebook(cell: Cell):
    compared = holdfast.compare(["fedavg", "prox"], seeds=1, **FAST)
    last = cell.shown[-1]
    assert "method" in last
    for entry in compared.plan.entries:
        (path,) = compared.folder.glob(f"{entry.folder}/*/summary.json")
        accuracy = json.loads(path.read_text(encoding="utf-8"))["final"]
        assert f"{100 * accuracy:.2f}%" in last
    assert last.count("100%") >= 2
    assert len(cell.shown) >= 2 * FAST["rounds"]


def test_a_comparison_says_how_far_it_is(capfd: pytest.CaptureFixture[str]):
    holdfast.compare(["fedavg", "prox"], seeds=1, progress=True, **FAST)
    said = capfd.readouterr()
    assert said.out == ""
    assert "2/2 prox" in said.err
    holdfast.compare(["fedavg"], seeds=1, **FAST)
    assert capfd.readouterr() == ("", "")


def test_without_rich(cell: Cell, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.core.notebook.find_spec", lambda name: None)
    with raises_exactly("progress needs the package rich: pip install rich, or leave progress out"):
        holdfast.run("fedavg", progress=True, **FAST)
    holdfast.run("fedavg", **FAST)
    assert cell.shown == [], "a notebook without rich stays silent"
