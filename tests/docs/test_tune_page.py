"""The page about tuning keeps its word: its lines run, and its figures are those of the code."""

from __future__ import annotations

import re
import shlex

import pytest

from helpers.commands import good
from helpers.places import ROOT
from helpers.searches import result
from holdfast.tuning.halving import Halving, rungs_of
from holdfast.tuning.importance import LEAST
from holdfast.tuning.sampling import BATCH, STARTUP
from holdfast.tuning.search_axis import EDGE
from holdfast.tuning.tune_plan import FACTOR, HELD_OUT, TRIALS

PAGE = (ROOT / "docs" / "tune.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL)
LINES = [line for kind, code in BLOCKS if kind == "sh" for line in code.splitlines()]
BRIEF = shlex.split("--rounds 1 --trials 2 --seeds 1 --model linear --clients 4 --cohort 2 --epochs 1")

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_the_lines_run_from_top_to_bottom():
    assert len(LINES) >= 4
    for line in LINES:
        words = shlex.split(line)[1:]
        good(*words, *(() if "--resume" in words else BRIEF))
    methods = [entry["method"] for entry in result("tuned")["entries"]]
    assert methods == ["fedavg", "fedbug+prox"]


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]):
    (code,) = [code for kind, code in BLOCKS if kind == "python"]
    exec(compile(code, "tune.md", "exec", dont_inherit=True), {"__name__": "__main__"})
    assert "prox.mu" in capsys.readouterr().out


def test_the_figures_are_those_of_the_code():
    usual = Halving(TRIALS, rungs_of(30, FACTOR, 1), FACTOR)
    assert (usual.entrants, usual.rungs, usual.rounds) == ([27, 9, 3], (4, 10, 30), 222)
    assert usual.rounds // 30 == 7
    assert (STARTUP, BATCH, LEAST, EDGE, HELD_OUT["tune"]) == (10, 4, 8, 0.05, 0.1)
    for text in ("--trials 27", "takes 222 rounds", "nine random", "batches of four", "fewer than eight", "within 5 %"):
        assert text in PAGE
