"""Folders and files of earlier versions: they are read, renamed and resumed, and nothing is run again."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from helpers.comparisons import stamps
from helpers.places import ROOT
from holdfast.comparison.observers import Observer
from holdfast.comparison.planned_run import PlannedRun
from holdfast.core.params import param
from holdfast.method.config import FIELDS, Config
from holdfast.reproduce.reproduction import Reproduction, reproduce
from holdfast.reproduce.run_names import run_name
from holdfast.reproduce.store import read, upgrade
from holdfast.reproduce.table_json import FORMAT
from holdfast.training.round_record import RoundRecord

OLD = ROOT / "tests" / "runs" / "format1"
ENDS = json.loads((OLD / "ends.json").read_text())["reproduction"]
SETTINGS: dict[str, Any] = {
    "precision": "fp64", "device": "cpu", "steps": 3, "rounds": 4, "model": "linear", "engine": "loop",
}  # fmt: skip


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A reproduction of format 2, stopped in its second run, whose method has another name today."""
    return Path(shutil.copytree(OLD / "reproduction", tmp_path / "old"))


def resumed(folder: Path, **more: Any) -> Reproduction:
    return reproduce("fedmrur", ENDS["table"], rows=["1"], scale="smoke", out=folder, **SETTINGS, **more)


def contents(folder: Path) -> dict[str, bytes]:
    """The files of all finished runs, by their names within the run."""
    finished = [summary.parent for summary in folder.glob("*/seed-*/summary.json")]
    return {str(p.relative_to(run)): p.read_bytes() for run in finished for p in run.rglob("*") if p.is_file()}


def test_a_reproduction_of_the_last_format_resumes(old: Path) -> None:
    finished = contents(old)
    assert finished
    upgrade(old)
    (done,) = old.glob("*/seed-0/summary.json")
    before = {k: v for k, v in stamps(old).items() if Path(k).is_relative_to(done.parent)}
    assert contents(old) == finished
    result = resumed(old)
    assert result.finished
    (table,) = result.tables
    runs = dict(zip(table.columns, table.runs, strict=True))
    assert [column for _, column, _, _ in ENDS["cells"]] == list(runs)
    for _, column, _, ours in ENDS["cells"]:
        mine = runs[column].ours
        assert mine is not None
        assert mine.values == pytest.approx(ours["values"], abs=1e-9)
    assert {k: v for k, v in stamps(old).items() if k in before} == before, "no finished run is run again"
    assert len(list(old.glob("*/seed-0/summary.json"))) == 4


class RoundLog(Observer):
    """Notes the rounds of every method."""

    def __init__(self) -> None:
        self.rounds: dict[str, list[int]] = {}

    def round(self, task: PlannedRun, record: RoundRecord) -> None:
        self.rounds.setdefault(str(task.method), []).append(record.round)


def test_the_started_run_resumes_at_its_checkpoint(old: Path) -> None:
    log = RoundLog()
    assert resumed(old, watch=log).finished
    assert list(log.rounds.values()) == [[2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]], "the first run was finished"


def test_folders_get_the_names_that_their_cells_have(old: Path) -> None:
    names = {p.name for p in old.iterdir() if p.is_dir()}
    upgrade(old)
    renamed = {p.name for p in old.iterdir() if p.is_dir() and p.name != ".lock"}
    assert len(renamed) == len(names) == 2
    assert not renamed & names
    assert any(name.startswith("fedcm-0.1-sam-0.5-normalized-digits-") for name in renamed)
    assert json.loads((old / "reproduce.json").read_text())["format"] == FORMAT == 4
    (table,) = read(old / "reproduce.json")
    assert {runs.folder for runs in table.runs} < renamed
    assert table.cells[1].method == "fedcm(0.1)+sam(0.5)+normalized"
    after = stamps(old)
    upgrade(old)
    assert stamps(old) == after, "once is enough"


def test_renaming_may_be_cut_off(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(old: Path, new: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("holdfast.reproduce.store.write", cut)
        with pytest.raises(KeyboardInterrupt):
            upgrade(old)
    assert json.loads((old / "reproduce.json").read_text())["format"] == 2
    upgrade(old)
    (table,) = read(old / "reproduce.json")
    assert [(old / runs.folder / "seed-0").is_dir() for runs in table.runs] == [True]


def test_a_run_that_has_both_names_is_kept_once(old: Path) -> None:
    twin = next(old.glob("momentum-*"))
    upgrade(Path(shutil.copytree(old, old.parent / "new")))
    (name,) = [p.name for p in (old.parent / "new").glob("fedcm-*")]
    shutil.copytree(twin, old / name)
    upgrade(old)
    assert (old / name / "seed-0").is_dir()
    assert json.loads((old / "reproduce.json").read_text())["format"] == FORMAT


def test_collecting_an_old_folder_shows_what_it_has(old: Path) -> None:
    (table,) = resumed(old, collect=True).tables
    assert [c.status for c in table.cells] == ["run", "not run", "not run", "not run"]


def test_a_new_setting_changes_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names depend on the settings that differ from their defaults."""

    @dataclass(frozen=True)
    class Later(Config):
        added: str = param("usual", "a setting of a later version")

    assert len(fields(Later)) == len(fields(Config)) + 1
    before = run_name(Config(rounds=3, data="mnist"))
    monkeypatch.setitem(FIELDS, "added", fields(Later)[-1])
    assert run_name(Later(rounds=3, data="mnist")) == before
    assert run_name(Later(rounds=3, data="mnist", added="other")) != before
