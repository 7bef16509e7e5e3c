"""What a user sees while a search runs."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import holdfast
from holdfast.tuning.tune_observers import TuneLog
from holdfast.tuning.tune_progress import TuneTable, tune_observer

TINY: dict[str, Any] = {"model": "linear", "clients": 6, "cohort": 2, "steps": 1, "rounds": 2, "batch": 16}


def test_a_log_has_a_line_per_rung(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    holdfast.tune(["fedavg"], trials=3, seeds=1, out=tmp_path / "here", watch=TuneLog(), **TINY)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "1 method, 6 rounds, 0 of them done"
    assert said[1].startswith("fedavg: 3 trials at round 1, best validation accuracy ")
    assert said[2].startswith("fedavg: 1 trial at round 2, best validation accuracy ")
    assert " with lr=" in said[2]
    assert said[3:] == ["the best settings on fresh seeds"]


def test_the_live_table_shows_progress_and_the_best_so_far():
    shown = StringIO()
    table = TuneTable(Console(file=shown, force_terminal=True, width=100))
    table.start(["fedavg", "prox"], [10, 10], [5, 0])
    for _ in range(3):
        table.round(SimpleNamespace(row=0, label="fedavg, trial 2", until=4), SimpleNamespace(round=1))  # type: ignore[arg-type]
    table.rung("fedavg", 4, 3, {"lr": 0.2}, 0.75)
    table.rung("prox", 4, 3, {}, None)
    view = Console(file=StringIO(), width=100)
    view.print(table.view())
    text = view.file.getvalue()  # type: ignore[attr-defined]
    for word in ("80%", "0%", "75.0 % at round 4", "lr=0.2", "trial 2, round 1"):
        assert word in text
    table.finals()
    table.finish()
    assert "fresh seeds" in shown.getvalue()


def test_a_terminal_gets_the_table_a_log_lines_and_a_quiet_command_nothing():
    assert isinstance(tune_observer(Console(force_terminal=True, file=StringIO()), quiet=False), TuneTable)
    assert isinstance(tune_observer(Console(file=StringIO()), quiet=False), TuneLog)
    assert not isinstance(tune_observer(Console(), quiet=True), TuneLog | TuneTable)
