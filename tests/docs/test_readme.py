"""What the README shows works as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import holdfast
from helpers.commands import good, lines
from helpers.places import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)
PYTHON = [code for kind, code in BLOCKS if kind == "python"]
SHELL = [line.strip() for kind, code in BLOCKS if kind == "sh" for line in code.splitlines() if line.strip()]
COMMANDS = [line for line in SHELL if line.startswith("holdfast ")]


# What makes a command short, by its first word; everything else stays as the README has it.
SHORTER = {
    "run": ["--rounds", "2"],
    "advise": ["--rounds", "2", "--budget", "150 rounds", "--methods", "prox", "--model", "linear", "--no-experience"],
}

pytestmark = pytest.mark.usefixtures("elsewhere")


def execute(code: str) -> dict[str, Any]:
    """Run code as a script of its own."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, "README.md", "exec", dont_inherit=True), space)
    return space


def test_there_is_something_to_run():
    assert len(PYTHON) >= 2
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize("code", PYTHON, ids=lambda code: code.strip().splitlines()[-1])
def test_python(code: str, capsys: pytest.CaptureFixture[str]):
    execute(code)
    if "print(" in code:
        assert re.search(r"accuracy 0\.\d+|accuracy 1\.0", capsys.readouterr().out)
    assert capsys.readouterr().err == ""


def test_the_result_predicts_raw_data_as_well_as_it_was_scored():
    """The data is normalised in training; the README once called the module with raw inputs."""
    space = execute(next(code for code in PYTHON if "result.predict" in code))
    test, result = space["federation"].data, space["result"]
    assert (result.predict(test.test_x) == test.test_y.numpy()).mean() == pytest.approx(result.score.accuracy)


def test_a_part_of_ones_own_is_checked_like_ours():
    """The README's part is written without ``from __future__ import annotations``."""
    code = next(code for code in PYTHON if "holdfast.Part" in code)
    pull = execute(code.rpartition("\nholdfast.run")[0])["Pull"]
    assert pull(1).mu == 1.0
    for bad in (-1.0, "strong", None, float("nan")):
        with pytest.raises(holdfast.HoldfastError, match="mu"):
            pull(bad)


@pytest.mark.parametrize("line", COMMANDS)
def test_command(line: str):
    words = shlex.split(line, comments=True)[1:]
    trains = words[0] == "run"
    said = good(*words, *SHORTER.get(words[0], []))
    assert said.out or said.err
    if trains:
        (folder,) = Path("runs").iterdir()
        assert len(lines(folder)) == 2
    if "--png" in words:
        assert Path(words[words.index("--png") + 1]).read_bytes().startswith(b"\x89PNG")


def test_resume_as_described():
    good("run", "fedavg", "--rounds", "2", "--steps", "1", "--out", "FOLDER", "--quiet")
    shown = re.search(r"`holdfast (run --resume --out FOLDER)`", README.replace("\n", " "))
    assert shown
    good(*shown[1].split(), "--rounds", "3", "--quiet")
    assert len(lines("FOLDER")) == 3


@pytest.mark.parametrize("line", [line for line in SHELL if line.startswith("make ")])
def test_make_target_exists(line: str):
    target = line.split()[1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("page", ["README.md", "docs/design.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page: str):
    path = ROOT / page
    targets = re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8"))
    assert [t for t in targets if not (path.parent / t).exists()] == []


def test_everything_public_can_be_imported():
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None
    assert set(re.findall(r"\bholdfast\.([A-Za-z_]+)", "".join(PYTHON))) <= set(holdfast.__all__)
