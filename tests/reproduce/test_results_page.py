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
from helpers.table_records import cell, read_as, table, with_cell
from helpers.toy_paper import rep, tables
from holdfast.core.errors import HoldfastError
from holdfast.reproduce.attribution import attributions
from holdfast.reproduce.paper_pictures import half_width, main_table, write_picture
from holdfast.reproduce.plain_words import paragraph, summary
from holdfast.reproduce.reading_tables import attribution_text
from holdfast.reproduce.results import page, readme, stored
from holdfast.reproduce.store import read
from holdfast.reproduce.table_schema import CellRecord, TableRecord
from holdfast.reproduce.verdict_table import verdict_table


def test_page_and_readme_match_the_files() -> None:
    tables = stored(ROOT / "results")
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == page(tables)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text == readme(text, tables)
    assert summary(tables) in text


def test_every_stored_run_says_what_it_is_of() -> None:
    """Device, date, commit, one line per seed, and the checksum of the published data."""
    for t in stored(ROOT / "results"):
        for runs in t.runs:
            assert len(runs.made) == len(runs.seeds) > 0
            assert all(made.get(fact) for made in runs.made for fact in ("device", "date", "commit", "torch"))
            assert runs.on_published_data, "a copy, or nobody knows"


def test_the_results_page_of_a_toy(toy: Path) -> None:
    Path("results").mkdir()
    tables("--scale", "full", "--out", "here", "--note", "Digits are small.")
    Path("results/toy.json").write_text(Path("here/reproduce.json").read_text())
    text = page(stored(Path("results")))
    assert "\n| --- | --- | --- | --- | --- |\n" in text, "all columns of the verdicts are words"
    for word in (
        "## Toy: a paper for tests (2026)", "### toy, table 1: Accuracy of two methods",
        "Data not found for 2 cells: cifar100 (2)", "reading “plain”",
        "| Toy, 1 | Thawing helps. | **open: the baseline's level is not reached** | 40% over 0%: ours ",
        "| Toy, II | FedAvg is quick. | **open: the baseline's level is not reached** | ",
        "| Toy, fig1 | Theory agrees. | **not tested", "Digits are small.", "FULL SCALE", "Measured 2",
    ):  # fmt: skip
        assert word in text
    assert text.index("## Verdicts") < text.index("### toy, table 1"), "the verdicts come first"
    assert page([]).endswith("No results are stored yet.\n")
    assert text.count("Digits are small.") == 1, "all tables have this note"
    one, *rest = stored(Path("results"))
    mixed = page([replace(one, remark="Letters are not."), *rest])
    assert (mixed.count("Letters are not."), mixed.count("Digits are small.")) == (1, 1), "of the two that were run"
    small = page([replace(t, scale="small", reproduction=False) for t in stored(Path("results"))])
    assert "**not tested: the runs are not in the paper's setting**" in small


def three(values: list[float], published: float, seeds: int = 3) -> CellRecord:
    return cell(values[:seeds], published)


def toy_tables() -> list[TableRecord]:
    """A paper whose baseline reaches its level under one of two readings, with a control and a variant."""
    columns = ["base", "new", "ours", "fair"]
    plain = [three([40.0, 41, 42], 50), three([70.0, 71, 72], 60), three([1.0, 2, 3], 60), cell(None, None)]
    read = [three([49.0, 50, 52], 50), three([60.0, 62, 63], 60), three([58.0, 49, 51], 60), three([66.0, 66, 66], 0)]
    made = [
        table(columns, [cells], expect=["new > base"], baseline=["base"], variants={"ours": "new"},
              controls={"fair": "its rate"}, why_not="") for cells in (plain, read)
    ]  # fmt: skip
    made[1] = with_cell(made[1], 0, 3, published=None)
    return [made[0], read_as(made[1], "as the code", 2)]


def test_a_line_of_the_verdicts() -> None:
    text = verdict_table(toy_tables())
    assert text.splitlines()[2:] == [
        "| Toy, 1 | It is better. | **holds** (1 of 1 tests hold) | new over base: ours +11.33 [+9.90, +12.77] (3 "
        "seeds), 1 row, printed +10.00; the control fair reaches +4.33 [+0.54, +8.13] (3 seeds) against new, 1 row | "
        "“as the code”: choice 0; choice 1 |",
        "| Toy, 1, our variant | the same | **no difference seen** (0 of 1 tests hold, 1 show no difference) | ours "
        "over base: ours +2.33 [-12.01, +16.68] (3 seeds), 1 row, printed +10.00 | “as the code”: choice 0; choice 1 |",
    ]
    text = page(toy_tables())
    assert "| plain | | row 0, base | 50 | 41.00 ± 1.00 | 9.00 points (1 row) |" in text.replace("|  |", "| |")
    assert "The baseline asks for the reading “as the code”.\n" in text
    assert "- choice 0: it may be (a guess)\n" in text
    assert "Control fair: its rate." in text


def test_a_paper_in_plain_words() -> None:
    assert paragraph(toy_tables()) == (
        "**Table 1**: “It is better” holds, with 1 of 1 tests that hold. Read as “as the code” (choice 0, choice 1), "
        "base lies 0.33 points from print, on average over 1 row. new is 11.33 points above base over 1 row (+9.90 to "
        "+12.77); the paper prints +10.00. The control: fair is 4.33 points above new over 1 row (+0.54 to +8.13). Our "
        "variant: ours is 2.33 points above base over 1 row (-12.01 to +16.68); the paper prints +10.00."
    )
    columns = ["base", "new"]
    one = table(columns, [[cell([49.0], 50.0), cell([40.0], 60.0)]], expect=["new > base"], baseline=["base"])
    idle = replace(table(columns, [[cell(None, 50.0), cell(None, 60.0)]], expect=["new > base"]), table="2")
    assert paragraph([one, idle]) == (
        "**Table 1**: “It is better” is open (fewer than three seeds). Read as “plain”, base lies 1.00 points from "
        "print, on average over 1 row. new is 9.00 points below base over 1 row (one seed, which decides nothing); the "
        "paper prints +10.00.\n\n1 more claim was not run."
    )
    far = replace(one, table="fig3", rows=table(columns, [[cell(20.0, 50.0), cell(90.0, 60.0)]]).rows)
    assert paragraph([far]).startswith("**Figure 3**: “It is better” is open (the baseline's level is not reached). ")
    assert summary([one]).splitlines()[2] == "- Toy: verdict on 1 claim: 1 open (fewer than three seeds)."


def test_equal_numbers_are_shown_once() -> None:
    plain, other = toy_tables()
    text = page([plain, read_as(plain, "augmented", 1), other])
    assert text.count("\n| row 0 | new | `fedavg` | 60 | ") == 2, "in two tables of three"
    assert "read as “augmented”: Numbers\n\nThe rows that were run are the same as under “plain”.\n" in text


def test_what_a_choice_is_worth_is_shown() -> None:
    plain, whole = toy_tables()
    alone = replace(read_as(whole, "only: choice 0", 1))
    ((name, text),) = [
        (a.goal.reading.name, attribution_text(a)[0]) for a in attributions([plain, whole, alone], plain)
    ]
    assert name == "as the code"
    assert [line.split(" | ")[0] for line in text.splitlines()[2:]] == ["| choice 0", "| choice 1", "| all together"]
    assert "| choice 1 | not run |" in text
    assert attribution_text(attributions([plain, whole, alone], plain)[0])[-1] == (
        "Printed: 50; the plain reading: 41; all together: 50.33."
    )
    assert "| all together | +9.33 [+7.90, +10.77] (3 seeds) |" in text
    assert attributions([plain, whole], plain) == [], "no choice was run by itself"


def test_the_picture_is_of_the_reading_that_decides(tmp_path: Path) -> None:
    found = main_table(toy_tables())
    assert found is not None
    assert found.reading.name == "as the code"
    write_picture(found, tmp_path / "toy.png")
    assert (tmp_path / "toy.png").read_bytes().startswith(b"\x89PNG")
    assert half_width(found.rows[0].cells[0]) == pytest.approx(3.79, abs=0.01), "4.303 * 1.528 / sqrt(3)"


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
