"""The programs and notebooks that the page of examples shows run, at a small scale."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from helpers.places import DOCS, ROOT
from holdfast.core.user_files import import_file

EXAMPLES = ROOT / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def program(name: str) -> ModuleType:
    """Import a program, without running it."""
    return import_file(EXAMPLES / f"{name}.py")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, and the environment of small examples."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_EXAMPLES", "small")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def test_the_page_shows_every_program_and_notebook():
    shown = set(re.findall(r"\.\./examples/([\w.]+)\)", (DOCS / "examples.md").read_text(encoding="utf-8")))
    assert shown == {p.name for p in EXAMPLES.iterdir() if p.suffix in (".py", ".ipynb")}


def test_drift_seen_and_fought(workplace: Path, capsys: pytest.CaptureFixture[str]):
    found = program("drift_on_mnist").main("digits", rounds=2)
    assert len(capsys.readouterr().out.splitlines()) == len(found) == 3
    assert all(-1 <= r.history[-1].drift["cosine"] <= 1 for r in found.values())


def test_hospitals(workplace: Path, capsys: pytest.CaptureFixture[str]):
    result = program("hospitals").main(rounds=2)
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[-5:]]
    assert names == sorted(program("hospitals").HOSPITALS)
    assert result.config.clients == 5


def test_a_part_of_ones_own(workplace: Path, capsys: pytest.CaptureFixture[str]):
    comparison = program("own_part").main(rounds=1, seeds=2)
    assert comparison.finished
    assert "turn-back" in capsys.readouterr().out


def test_three_machines(workplace: Path):
    pytest.importorskip("flwr")
    deployed, here = program("three_machines").main(rounds=1)
    assert deployed.score.accuracy == pytest.approx(here.score.accuracy)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[p.stem for p in NOTEBOOKS])
def test_notebooks_run(path: Path, workplace: Path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear the outputs before you commit"
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
