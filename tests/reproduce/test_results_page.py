"""The page of results, and the files that it is made of."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.places import ROOT
from helpers.toy_paper import rep, tables
from holdfast.core.errors import HoldfastError
from holdfast.reproduce.results import page, stored
from holdfast.reproduce.store import read


def test_the_results_page_matches_the_files() -> None:
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == page(stored(ROOT / "results"))


def test_the_results_page_of_a_toy(toy: Path) -> None:
    Path("results").mkdir()
    tables("--scale", "full", "--out", "here", "--note", "Digits are small.")
    Path("results/toy.json").write_text(Path("here/reproduce.json").read_text())
    text = page(stored(Path("results")))
    assert "\n| --- | --- | --- | ---: | ---: | ---: | --- |\n" in text, "table, claim, verdict and scale are words"
    for word in (
        "## Toy: a paper for tests (2026)", "### toy, table 1: Accuracy of two methods",
        "Data not found for 2 cells: cifar100 (2)",
        "| toy, fig1 | Theory agrees. | **not tested** |", "Digits are small.", "FULL SCALE", "Measured 2",
    ):  # fmt: skip
        assert word in text
    assert page([]).endswith("No results are stored yet.\n")
    assert text.count("Digits are small.") == 1, "all tables have this note"
    one, *rest = stored(Path("results"))
    mixed = page([replace(one, remark="Letters are not."), *rest])
    assert (mixed.count("Letters are not."), mixed.count("Digits are small.")) == (1, 1), "of the two that were run"
    assert "**, at small scale |" in page(
        [replace(t, scale="small", reproduction=False) for t in stored(Path("results"))]
    )


def test_the_results_page_is_written_by_a_command(toy: Path) -> None:
    tables("--table", "1", "--rows", "1", "--out", "here")
    code = [sys.executable, "-m", "holdfast.reproduce.results"]
    bad = subprocess.run(code, capture_output=True, text=True)
    assert (bad.returncode, bad.stderr.splitlines()[-1]) == (
        2, "python -m holdfast.reproduce.results: error: . must have the folders results and docs: run it in the root "
        "of the repository",
    )  # fmt: skip
    for name in ("results", "docs"):
        Path(name).mkdir()
    shutil.copy("here/reproduce.json", "results/toy.json")
    assert subprocess.run(code, capture_output=True, text=True).stdout == "wrote docs/results.md\n"
    assert Path("docs/results.md").read_text(encoding="utf-8") == page(stored(Path("results")))


def test_tables_of_a_newer_version_are_refused(toy: Path) -> None:
    Path("later.json").write_text('{"format": 99, "tables": []}')
    with pytest.raises(
        HoldfastError, match=r"^later\.json was written by a newer Holdfast: upgrade Holdfast to read it$"
    ):
        read(Path("later.json"))


def test_tables_of_the_first_format_can_be_read(toy: Path) -> None:
    (one,) = tables("--table", "1", "--rows", "1", "--out", "here")
    file = Path("here/reproduce.json")
    stamp = {"holdfast": "0.1.0", "torch": "1.0", "date": "2001-01-01", "commit": "abc1234", "note": "An attic."}
    for row in one["rows"]:
        row["cells"] = [{k: v for k, v in c.items() if k != "made"} | {"device": "cpu"} for c in row["cells"]]
    file.write_text(json.dumps({"format": 1, "tables": [one | {"made": stamp}]}))
    text = page(stored(Path("here")))
    assert "\n\nAn attic.\n" in text
    assert "2001" not in text, "that was when a command ended, not when a cell was run"
    rep("--table", "II", "--out", "here")
    assert [t.remark for t in read(file)] == ["An attic.", ""]
    assert "An attic." in rep("--table", "1", "--out", "here", "--collect").out
