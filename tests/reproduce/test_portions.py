"""The plan of what is still to be run: every command names what exists, and a portion travels."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from helpers.places import ROOT


@pytest.fixture(scope="module")
def portions() -> ModuleType:
    spec = importlib.util.spec_from_file_location("paper_portions", ROOT / "benchmarks" / "paper_portions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_of_the_plan_has_cells_to_run(portions: ModuleType) -> None:
    names = [portion["name"] for portion in portions.plan()]
    assert len(set(names)) == len(names)
    for portion in portions.plan():
        assert set(portion) <= {"name", "device", "data", "decides", "reading", "commands"}
        assert portion["device"] in ("cpu", "gpu")
        used = set()
        for arguments in portions.commands(portion):
            found = portions.resolved(*arguments)
            assert found.cells, arguments
            assert found.unmatched == [], arguments
            assert found.scale == "full"
            used |= {cell.config.data.partition("(")[0] for cell in found.cells}
        assert used == set(portion["data"]), portion["name"]


def test_the_plan_is_in_the_folder_of_results(portions: ModuleType) -> None:
    text = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    assert text == portions.with_plan(text)
    assert (
        portions.progress({"commands": ["fedavg-mnist --table 2 --rows 1 --columns 1,2 --seeds 3"]}, set()) == "0 of 6"
    )


def test_another_reading_takes_the_place_of_the_expected_one(portions: ModuleType) -> None:
    portion = {"reading": "NIID-Bench", "commands": ["fednlr --table 1 --reading {reading}", "fednlr --readings"]}
    assert list(portions.commands(portion)) == [
        ["fednlr", "--table", "1", "--reading", "NIID-Bench", "--scale", "full"],
        ["fednlr", "--readings", "--scale", "full"],
    ]
    assert next(portions.commands(portion, "two words"))[4] == "two words"


def test_tables_are_collected_whole_and_once(portions: ModuleType) -> None:
    found = portions.whole_tables("")
    assert found[0] == ["fedagg", "--table", "III", "--readings", "--scale", "full"]
    assert len({tuple(words) for words in found}) == len(found)
    assert not {"--rows", "--columns", "--seeds"} & {word for words in found for word in words}


def test_finished_runs_travel_without_checkpoints(
    portions: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    for run, file in (("a/seed-0", "summary.json"), ("a/seed-1", "history.jsonl"), ("b/seed-0", "diverged.txt")):
        folder = there / "toy" / run
        (folder / "checkpoint").mkdir(parents=True)
        (folder / "checkpoint" / "weights").write_text("many")
        (folder / file).write_text(run)
    (there / "toy" / "reproduce.json").write_text("{}")
    (here / "toy" / "c").mkdir(parents=True)
    for folder, step in ((there, "pack"), (here, "unpack")):
        monkeypatch.setattr(sys, "argv", ["x", "--out", str(folder), step, str(tmp_path / "portion.tgz")])
        assert portions.main() == 0
    found = sorted(str(path.relative_to(here)) for path in here.rglob("*") if path.is_file())
    assert found == ["toy/a/seed-0/summary.json", "toy/b/seed-0/diverged.txt", "toy/reproduce.json"]
    assert (here / "toy" / "c").is_dir()


def test_a_portion_ends_in_time(
    portions: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["x", "--out", str(tmp_path), "run", "fedavg-mnist-cnn", "--seconds", "0"])
    assert portions.main() == 130
    assert capsys.readouterr().out == ("no time left for: fedavg-mnist --table 2 --rows 3,4 --seeds 3 --scale full\n")
    monkeypatch.setattr(sys, "argv", ["x", "run", "lunch"])
    with pytest.raises(SystemExit, match=r"^no portion 'lunch'; known: fedagg-mnist-linear, "):
        portions.main()
