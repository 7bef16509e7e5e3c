"""The papers' tables, run again: settings from files, published numbers beside ours, nothing invented."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.commands import Said, call, good, refused
from helpers.comparisons import stamps
from helpers.data_files import write_idx
from helpers.places import ROOT
from holdfast.comparison.stored_run import StoredRun
from holdfast.core.errors import HoldfastError
from holdfast.reproduce.cells import TableSelection, cells, merged
from holdfast.reproduce.claims import Outcome, outcomes, published_counts
from holdfast.reproduce.markdown import LEAK, table_markdown
from holdfast.reproduce.measure import PLAIN, REACHED, WORDS, Measure
from holdfast.reproduce.paper import load_paper, shelf
from holdfast.reproduce.reproduction import reproduce
from holdfast.reproduce.results import page, stored
from holdfast.reproduce.selection import choose
from holdfast.reproduce.store import SHARED, read
from holdfast.reproduce.table_schema import CellRecord, table_from_json

TOY = """
title = "Toy: a paper for tests (2026)"
notes = "Nothing is left open."

[setting]
data = "digits"
model = "linear"
clients = 6
cohort = 2
steps = 3
rounds = 4

[scale.small]
rounds = 3

[scale.smoke]
participation = 0.5
epochs = 1
rounds = 2

[[table]]
id = "1"
caption = "Accuracy of two methods"
claim = "Thawing helps."
measure = "last5"
unit = "%"
expect = ["40% > 0%"]
columns = [
  { name = "0%", method = "" },
  { name = "40%", method = "fedbug(0.4)" },
]

[[table.row]]
name = "IID, FedAvg"
set = { split = "iid" }
published = [20.0, 30.5]
spread = [0.5, nan]

[[table.row]]
name = "IID, FedProx, the usual"
method = "prox(0.01)"
set = { split = "iid" }
published = [nan, 31.0]
note = "the first number cannot be read"

[[table.row]]
name = "on Mars"
published = [1.0, 2.0]
absent = "no data from there"

[[table.row]]
name = "CIFAR-100"
set = { data = "cifar100", model = "cnn" }
published = [1.0, 2.0]

[[table]]
id = "II"
caption = "Rounds to 11% and to 99.9%"
claim = "FedAvg is quick."
measure = "rounds_to(0.999)"
unit = "rounds"
set = { split = "iid" }
columns = [{ name = "FedAvg" }, { name = "kappa", measure = "kappa", unit = "" }]
expect = ["easy > hard"]
[[table.row]]
name = "hard"
published = [inf, nan]
[[table.row]]
name = "easy"
measure = "rounds_to(0.05)"
published = [1, nan]

[[table]]
id = "fig1"
caption = "A picture of the theory"
claim = "Theory agrees."
theory = "fedbug"
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "data"))
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "toy.toml").write_text(TOY)
    return folder


def rep(*args: str, paper: str = "toy") -> Said:
    return call("reproduce", paper, "--papers", "papers", *args)


def tables(*args: str) -> list[dict[str, Any]]:
    said = rep(*args, "--json")
    assert said.code == 0, said.err
    return said.json


# -- settings --------------------
def test_layers_override_each_other(toy: Path) -> None:
    paper = load_paper("toy", toy)
    full, small, smoke = (
        cells(paper, TableSelection.whole(paper.table[0]), scale, {}) for scale in ("full", "small", "smoke")
    )
    assert (full[0].config.rounds, small[0].config.rounds, smoke[0].config.rounds) == (4, 3, 2)
    assert (full[0].config.cohort, full[0].config.steps) == (2, 3)
    assert (smoke[0].config.cohort, smoke[0].config.participation) == (None, 0.5), "a rival replaces the other"
    assert (smoke[0].config.steps, smoke[0].config.epochs) == (None, 1)
    assert [c.config.method for c in full[:4]] == ["fedavg", "fedbug(0.4)", "prox(0.01)", "prox(0.01)+fedbug(0.4)"]
    assert cells(paper, TableSelection.whole(paper.table[0]), "full", {"rounds": 9})[0].config.rounds == 9
    assert full[4].absent == "no data from there"
    assert merged([{"cohort": 2, "lr": 1}, {"participation": 0.5}, {"lr": 2}]) == {"participation": 0.5, "lr": 2}


def test_equal_cells_share_a_folder(toy: Path) -> None:
    paper = load_paper("toy", toy)
    one, two = (cells(paper, TableSelection.whole(table), "full", {}) for table in paper.table[:2])
    assert one[0].folder == two[0].folder == two[2].folder
    assert len({c.folder for c in one[:4]}) == 4


def chosen(names: list[str], *texts: str) -> list[int]:
    return choose("row", texts, {"1": names}, "toy")["1"]


def test_choosing_rows_and_columns() -> None:
    names = ["CIFAR-10, FedAvg", "CIFAR-10, FedProx", "MNIST, FedAvg", "0%", "10%"]
    assert chosen(names) == [0, 1, 2, 3, 4]
    assert chosen(names, "fedavg") == [0, 2]
    assert chosen(names, "CIFAR-10, FedProx") == [1]
    assert chosen(names, "mnist", "2") == [1, 2]
    assert chosen(names, "3,2") == [1, 2]
    assert chosen(names, "1-2,5") == [0, 1, 4]
    assert chosen(names, "0%,10%") == [3, 4]
    with pytest.raises(HoldfastError, match="no row 'MNIST, FedProx, CIFAR-10' in table 1; "):
        chosen(names, "MNIST, FedProx, CIFAR-10")  # parts of names are not split at commas
    assert chosen(names, "1-2") == [0, 1]
    assert chosen(names, "0%") == [3], "a whole name comes first"


def test_whole_words_come_before_parts() -> None:
    names = ["CIFAR-10, IID, 0%", "CIFAR-10, Non-IID, 10%", "CIFAR-100, IID, 20%", "1, 2"]
    assert chosen(names, "CIFAR-10") == [0, 1]
    assert chosen(names, "IID") == [0, 2]
    assert chosen(names, "0%") == [0]
    assert chosen(names, "CIFAR") == [0, 1, 2], "no whole word: a part"
    assert chosen(names, "1, 2") == [3], "a name that looks like a list"


def test_what_is_asked_for_must_be_in_one_table_only() -> None:
    tables = {"1": ["0%", "40%"], "2": ["40%", "FedAvg", "x"]}
    assert choose("column", ["fedavg"], tables, "toy") == {"1": [], "2": [1]}
    assert choose("column", ["0%,FedAvg"], tables, "toy") == {"1": [0], "2": [1]}
    assert choose("column", ["3"], tables, "toy") == {"1": [], "2": [2]}
    with pytest.raises(HoldfastError, match="no column '4' in the tables; they have at most 3 columns; see: "):
        choose("column", ["4"], tables, "toy")
    with pytest.raises(HoldfastError, match="2-9"):  # a range is not cut
        choose("column", ["2-9"], tables, "toy")


ROWS = [f"CIFAR-10, {k}0% participation, {m}" for k in range(1, 9) for m in ("FedAvg", "FedProx", "FedDyn")]


@pytest.mark.parametrize(
    ("text", "wrong", "hint"),
    [
        ("fedporx", "fedporx", "closest: FedProx"),
        (
            "30% partizipation",
            "30% partizipation",
            "closest: 30% participation; 80% participation; 70% participation",
        ),
        ("CIFAR-10, 20% participation, FedAg", None, "closest: CIFAR-10, 20% participation, FedAvg; CIFAR-10, "),
        ("Venus", "Venus", "known: CIFAR-10; 10% participation; FedAvg; FedProx; FedDyn; 20% participation; "),
        ("1,4,Venus", "Venus", "known: CIFAR-10; "),
        ("25", "25", "it has 24 rows"),
        ("16-x", "16-x", "write a range as two numbers, such as 2-5"),
        ("3..5", "3..5", "write a range as two numbers, such as 2-5"),
        ("20-16", "20-16", "write the range as 16-20"),
    ],
)
def test_a_row_that_is_not_there_is_answered_shortly(text: str, wrong: str | None, hint: str) -> None:
    with pytest.raises(HoldfastError) as error:
        chosen(ROWS, text)
    said = str(error.value)
    assert said.startswith(f"no row {wrong or text!r} in table 1; {hint}")
    assert said.endswith("; see: holdfast reproduce toy --list")
    assert said.count(";") <= (4 if "known" not in hint else 14), "three guesses, or the pieces of the 24 names"


KNOWN_MEASURES = (
    "known: final, best, curve, personal, by_class, kappa, rho, seconds, seconds_per_round, bytes, last5, "
    "rounds_to(0.6), seconds_to(0.6), bytes_to(0.6), drift.<name>"
)
FORMS = "must be 'A > B', 'A >= B', 'A > all' or 'A > number', of columns or of rows"
USUAL = "table 1, row 'IID, FedProx, the usual'"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('id = "II"', 'id = "1"', "toy.toml: the table '1' appears twice; rename one of them"),
        (
            "published = [nan, 31.0]", "published = [31.0]",
            f"toy.toml, {USUAL}: published must have one number for each of the 2 columns, not 1",
        ),
        (
            "published = [nan, 31.0]", 'published = ["a", 31.0]',
            f"toy.toml, {USUAL}: published and spread must be numbers; write nan where the paper prints none",
        ),
        (
            "spread = [0.5, nan]", "spread = [-0.5, nan]",
            "toy.toml, table 1, row 'IID, FedAvg': spread must be at least 0; write nan where the paper prints none",
        ),
        (
            'name = "IID, FedProx, the usual"', 'name = "IID, FedAvg"',
            "toy.toml, table 1: the row 'IID, FedAvg' appears twice; rename one of them",
        ),
        ('measure = "last5"', 'measure = "last0"', f"toy.toml, table 1: unknown measure 'last0'; {KNOWN_MEASURES}"),
        (
            'measure = "last5"', 'measure = "rounds_to"',
            f"toy.toml, table 1: unknown measure 'rounds_to'; {KNOWN_MEASURES}",
        ),
        ('expect = ["40% > 0%"]', 'expect = ["40% > 1%"]', f"toy.toml, table 1: expect '40% > 1%' {FORMS}"),
        ('expect = ["40% > 0%"]', 'expect = ["40% beats 0%"]', f"toy.toml, table 1: expect '40% beats 0%' {FORMS}"),
        (
            'name = "on Mars"', 'name = "40%"',
            "toy.toml, table 1: '40%' is both a row and a column; rename one of them",
        ),
        (
            '{ name = "40%"', '{ name = "40%", variant_of = "30%"',
            "toy.toml, table 1, column '40%': variant_of must name a published column, not '30%'",
        ),
        (
            'expect = ["40% > 0%"]', 'needs = "all but some"',
            "toy.toml, table 1: needs must be all, most or 'all but N', not 'all but some'",
        ),
        (
            'caption = "Accuracy of two methods"', 'captoin = "x"',
            "unknown key 'captoin' in toy.toml, table 1; did you mean caption or claim?",
        ),
        ('caption = "Accuracy of two methods"', "", "toy.toml, table 1: the key 'caption' is missing; add it"),
        ("[scale.smoke]", "[scale.tiny]", "unknown scale in toy.toml 'tiny'; known: small, smoke"),
        (
            'title = "Toy', 'title = Toy"',
            "papers/toy.toml is not valid TOML: Invalid value (at line 2, column 9)",
        ),
        (
            'theory = "fedbug"', "",
            "toy.toml, table fig1: needs columns and rows, or a key absent or theory that says why it has none",
        ),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_line(toy: Path, old: str, new: str, message: str) -> None:
    assert old in TOY
    (toy / "toy.toml").write_text(TOY.replace(old, new))
    assert refused("reproduce", "toy", "--papers", "papers", "--scale", "smoke") == f"holdfast: {message}\n"


LIST = "see: holdfast reproduce toy --list"
NO_DATA = (
    "nothing can be run: data not found in {here}/data for 2 cells: cifar100 (2); give its folder with --data-dir, or "
    "fetch it: holdfast data fetch cifar100 (see: holdfast data list)"
)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("tory",), "unknown paper 'tory'; did you mean toy?"),
        (("toy", "--table", "7"), f"toy has no table '7'; known: 1, II, fig1; {LIST}"),
        (("toy", "--table", "fig2"), f"toy has no table 'fig2'; known: 1, II, fig1; {LIST}"),
        (
            ("toy", "--table", "1", "--rows", "Venus"),
            f"no row 'Venus' in table 1; known: IID, FedAvg; IID, FedProx, the usual; on Mars; CIFAR-100; {LIST}",
        ),
        (("toy", "--table", "1", "--columns", "99%"), f"no column '99%' in table 1; known: 0%; 40%; {LIST}"),
        (("toy", "--table", "fig1", "--rows", "easy"), f"no row 'easy' in table fig1; it has 0 rows; {LIST}"),
        (("toy", "--rows", "easy", "--columns", "40%"), f"no table has both these rows and these columns; {LIST}"),
        (
            ("toy", "--collect", "--out", "nowhere"),
            "nothing was run in nowhere: choose another --out, or leave --collect out to run it",
        ),
        (("toy", "--table", "1", "--rows", "4"), NO_DATA),
        (("toy", "--table", "1", "--rows", "3-4"), NO_DATA),
        (("toy", "--scale", "huge"), "unknown scale 'huge'; known: full, small, smoke"),
        (("toy", "--seeds", "0"), "seeds must be a whole number of at least 1, not 0"),
        (("toy", "--seeds", "many"), "argument --seeds: invalid int value: 'many'; see: holdfast reproduce --help"),
        (("toy", "--jobs", "0"), "jobs must be a whole number of at least 1, not 0"),
        (("toy", "--set", "lr"), "--set lr: expected KEY=VALUE"),
        (("toy", "--set", "lrr=1"), "unknown setting 'lrr'; did you mean lr?"),
        (
            ("toy", "--set", "lr=-1"),
            "toy, table 1, IID, FedAvg / 0%: run: lr must be a number above 0, not -1.0",
        ),
        (
            ("toy", "--set", "seed=1"),
            "seed cannot be set in a reproduction: the paper's table decides it; leave it out",
        ),
        (("toy", "--frobnicate"), "unrecognized arguments: --frobnicate; see: holdfast reproduce --help"),
        ((), "reproduce needs a paper; see: holdfast reproduce --list"),
    ],
)
def test_bad_input_is_one_line(toy: Path, args: tuple[str, ...], message: str) -> None:
    line = refused("reproduce", "--papers", "papers", *args)
    line = re.sub("see: .* reproduce --help", "see: holdfast reproduce --help", line)  # tests have another name
    assert line == f"holdfast: {message.format(here=toy.parent)}\n"


def test_the_list_names_everything(toy: Path) -> None:
    assert "toy        Toy: a paper for tests (2026)" in good("reproduce", "--list", "--papers", "papers").out
    text = rep("--list", "--scale", "full").out
    for word in (
        "table 1: Accuracy", "column 2 40%: fedbug(0.4)", "row 2 IID, FedProx, the usual: prox(0.01); split=iid",
        "absent: no data from there", "row 4 CIFAR-100: data=cifar100, model=cnn; data absent\n",
        "scale small: rounds=3", "holdfast theory fedbug", "setting: data=digits", "Nothing is left open.",
    ):  # fmt: skip
        assert word in text
    assert text.endswith("\n\nData not found for 2 cells: cifar100 (2); see: holdfast data list\n")
    assert text.count("not found") == 1
    assert "not found" not in rep("--list", "--table", "II").out


# -- running --------------------
def test_published_ours_and_the_difference(toy: Path) -> None:
    (one,) = tables("--table", "1", "--scale", "full", "--seeds", "2", "--out", "here")
    first, second, mars, cifar = (row["cells"] for row in one["rows"])
    runs = [json.loads(p.read_text()) for p in sorted(Path("here", first[0]["folder"]).glob("seed-*/summary.json"))]
    want = [100 * run["last5_accuracy"] for run in runs]
    assert first[0]["ours"]["values"] == pytest.approx(want)
    assert first[0]["difference"] == pytest.approx(sum(want) / 2 - 20.0)
    assert (first[0]["published"], first[0]["spread"], first[1]["spread"]) == (20.0, 0.5, None)
    assert (second[0]["published"], second[0]["difference"], second[0]["status"]) == (None, None, "run")
    assert [(c["status"], c["why"]) for c in mars] == [("absent", "no data from there")] * 2
    assert [(c["status"], c["why"]) for c in cifar] == [("data absent", "cifar100 was not found")] * 2
    assert "ours" not in cifar[0]
    assert one["reproduction"]
    text = Path("here/reproduce.md").read_text()
    assert "\n| --- | --- | --- | ---: | ---: | ---: |\n" in text, "row, column and method are words"
    assert f"| 20 ± 0.5 | {sum(want) / 2:.2f} ± " in text
    assert "FULL SCALE, the paper's setting" in text
    assert "Accuracy of two methods\n" in text
    assert "Data not found for 2 cells: cifar100 (2). 2 cells were not run: no data from there.\n" in text
    assert "| CIFAR-100 |" not in text, "what is absent is counted, not listed"


def test_what_is_told_is_what_was_asked_for(toy: Path) -> None:
    rep("--table", "II", "--scale", "full", "--out", "here")
    said = rep("--table", "1", "--rows", "2", "--columns", "40%", "--scale", "full", "--out", "here")
    assert said.out.count("\n| IID") == 1, "row 1 shares its runs with table II, and was not asked for"
    assert "| IID, FedProx, the usual | 40% | " in said.out
    assert "\n7 cells were not requested.\n" in said.out
    assert "cifar100" not in said.out
    assert "published numbers: " not in said.out, "a comparison needs both columns"
    (one,) = tables("--table", "1", "--rows", "2", "--columns", "40%", "--scale", "full", "--out", "here")
    assert (one["columns"], [row["name"] for row in one["rows"]]) == (["40%"], ["IID, FedProx, the usual"])
    assert [[c["method"] for c in row["cells"]] for row in one["rows"]] == [["prox(0.01)+fedbug(0.4)"]]
    assert (one["expect"], one["not_asked"]) == ([], 7)
    stored = {t.table: t for t in read(Path("here/reproduce.json"))}
    statuses = [[c.status for c in row.cells] for row in stored["1"].rows]
    assert statuses == [["run", "not run"], ["not run", "run"], ["absent"] * 2, ["data absent"] * 2]
    assert stored["1"].expect == ["40% > 0%"]
    kept = Path("here/reproduce.md").read_text()
    assert "| IID, FedAvg | 0% | " in kept
    assert "2 cells were not run. Data not found for 2 cells: cifar100 (2)." in kept


def test_a_claim_about_a_part_says_so(toy: Path) -> None:
    said = rep("--table", "1", "--rows", "1", "--scale", "full", "--out", "here")
    assert " in the requested cells: " in said.out
    assert "published numbers: 1 of 1." in said.out
    assert "in the requested cells" not in Path("here/reproduce.md").read_text()


def test_tables_without_the_rows_are_left_out(toy: Path) -> None:
    said = rep("--table", "1", "--table", "II", "--rows", "easy", "--out", "here")
    assert said.code == 0
    assert "table II" in said.out
    assert "table 1:" not in said.out
    assert "no such rows or columns in table 1\n" in said.err
    assert [t.table for t in read(Path("here/reproduce.json"))] == ["II"]
    assert "no such rows" not in rep("--rows", "easy", "--out", "here").err, "no table was named"


def test_other_seeds_are_kept(toy: Path) -> None:
    rep("--table", "1", "--rows", "1", "--seeds", "2", "--out", "here")
    (one,) = tables("--table", "1", "--rows", "1", "--out", "here")
    assert one["rows"][0]["cells"][0]["seeds"] == [0]
    (kept,) = read(Path("here/reproduce.json"))
    assert kept.runs[0].seeds == [0, 1]


def test_runs_from_elsewhere_need_no_data_here(toy: Path) -> None:
    """A folder that was filled where the data is can be looked at where it is not."""
    args = ("--table", "1", "--rows", "4", "--set", "model=linear", "--out", "here")
    (toy / "toy.toml").write_text(TOY.replace('data = "cifar100"', 'data = "mnist"'))
    write_idx(Path("data/MNIST/raw"), ("train", "t10k"), 10)
    (there,) = tables(*args)
    shutil.rmtree("data")
    (here,) = tables(*args)
    assert here["rows"] == there["rows"]
    assert here["rows"][0]["cells"][0]["status"] == "run"


def test_what_is_cut_off_names_the_command_that_goes_on(toy: Path) -> None:
    args = ["toy", "--papers", "papers", "--table", "1", "--rows", "IID, FedAvg", "--set", "rounds=3000", "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.reproduce", *args, "--out", "here"], stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 60
    while not list(Path("here").glob("*/seed-0/history.jsonl")):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    command = f"python -m holdfast.reproduce {shlex.join(args)} --out here"
    assert f"stopped; resume with: {command}\n" in said


def test_other_scales_are_never_called_a_reproduction(toy: Path) -> None:
    said = rep("--table", "1", "--rows", "1", "--out", "small")
    assert "SMALL SCALE, not the paper's setting: NOT a reproduction" in said.out
    assert "rounds: 3" in said.out
    assert "ours (small: not a reproduction)" in said.out
    said = rep("--table", "1", "--rows", "1", "--scale", "smoke", "--out", "smoke")
    assert "SMOKE TEST" in said.out
    assert "Accuracy of two methods (in the paper; here: digits, linear)\n" in said.out
    assert "Thawing helps. **not tested**; published numbers: 1 of 1." in said.out
    (one,) = read(Path("smoke/reproduce.json"))
    assert one.runs[0].difference is None
    said = rep("--table", "1", "--rows", "1", "--scale", "full", "--set", "rounds=2", "--out", "changed")
    assert "CHANGED, rounds = 2" in said.out
    assert "ours (full, changed: not a reproduction)" in said.out
    (one,) = read(Path("changed/reproduce.json"))
    assert not one.reproduction
    (one,) = tables("--table", "1", "--rows", "1", "--scale", "full", "--set", "precision=fp64", "--device", "cpu")
    assert one["reproduction"], "arithmetic is told, and changes nothing of the setting"
    assert one["changed"] == {"precision": "fp64"}


def test_never_is_infinity_and_claims_follow_the_stated_rule(toy: Path) -> None:
    (two,) = tables("--table", "II", "--scale", "full", "--out", "here")
    hard, easy = (row["cells"] for row in two["rows"])
    assert hard[0]["published"] == "inf"
    assert hard[0]["ours"] == {"mean": None, "std": None, "values": [None]}
    assert easy[0]["ours"]["mean"] == 1
    assert easy[0]["difference"] == 0
    assert easy[1]["ours"]["mean"] == pytest.approx(hard[1]["ours"]["mean"])
    assert "| ∞ | ∞ | – |" in Path("here/reproduce.md").read_text()
    assert "| 1 | 1 | +0 |" in Path("here/reproduce.md").read_text(), "rounds are whole"
    assert outcomes(table_from_json(two))[0] == Outcome("holds partly", passed=1, tested=2, pairs_run=2, pairs=2), (
        "kappa is the same"
    )
    assert published_counts(table_from_json(two)) == (1, 1), "fewer rounds are better"


@pytest.mark.parametrize(("text", "mean"), [("last2", 0.35), ("curve", 0.25), ("last9", 0.25)])
def test_means_over_rounds(text: str, mean: float) -> None:
    history = [{"test_accuracy": a} for a in (0.1, 0.2, None, 0.3, 0.4)]
    run = StoredRun(0, history, {}, "")
    assert Measure.parse(text, "here").value(run) == pytest.approx(mean)
    assert Measure.parse(text, "here").scaled(mean, "%") == pytest.approx(100 * mean)


def test_nothing_is_run_twice(toy: Path) -> None:
    tables("--table", "1", "--rows", "1", "--out", "here")
    before = stamps("here")
    tables("--table", "1,II", "--out", "here")
    after = stamps("here")
    assert {k: after[k] for k in before} == before
    folders = {Path(k).parts[1] for k in after}
    assert len(folders) == 4, "two methods, with and without FedBug; table II is FedAvg again"
    tables("--out", "here", "--collect", "--note", "Looked at again.")
    assert stamps("here") == after
    assert {t.remark for t in read(Path("here/reproduce.json"))} == {"Looked at again."}
    tables("--out", "here", "--collect")
    assert {t.remark for t in read(Path("here/reproduce.json"))} == {"Looked at again."}
    assert [t.table for t in read(Path("here/reproduce.json"))] == ["1", "II", "fig1"]
    assert "analytical: computed by `holdfast theory fedbug`" in Path("here/reproduce.md").read_text()


def summaries(folder: str) -> list[Path]:
    return sorted(Path(folder).glob("*/seed-*/summary.json"))


def test_the_numbers_are_of_when_and_where_they_were_run(toy: Path) -> None:
    """Not of the command that looks at them: that may be a later one, on another machine."""
    tables("--table", "1", "--rows", "1", "--columns", "1", "--out", "here")
    (file,) = summaries("here")
    elsewhere = {"date": "2001-01-01", "torch": "1.0", "commit": "abc1234", "device": "Abacus"}
    file.write_text(json.dumps(json.loads(file.read_text()) | elsewhere))
    (one,) = tables("--table", "1", "--rows", "2", "--seeds", "2", "--out", "here", "--note", "Of two days.")
    assert [len(c["made"]) for c in one["rows"][0]["cells"]] == [2, 2], "one for every seed"
    (kept,) = read(Path("here/reproduce.json"))
    old = kept.runs[0].made
    assert [{name: made[name] for name in elsewhere} for made in old] == [elsewhere]
    today, cells = date.today().isoformat(), "(2 cells)"
    assert (
        f"\n\nMeasured 2001-01-01 (1 cell) and {today} {cells} on Abacus (1 cell) and cpu {cells}, "
        f"torch 1.0 (1 cell) and {torch.__version__} {cells}, commit "
    ) in Path("here/reproduce.md").read_text()


def test_what_is_not_known_of_a_run_is_not_told(toy: Path) -> None:
    args = ("--table", "1", "--rows", "1", "--out", "here")
    tables(*args)
    for file in summaries("here"):
        known = {k: v for k, v in json.loads(file.read_text()).items() if k not in ("date", "torch", "commit")}
        file.write_text(json.dumps(known))
    assert "\n\nMeasured on cpu.\n" in rep(*args, "--collect").out
    for file in summaries("here"):
        known = json.loads(file.read_text())
        del known["device"], known["holdfast"]
        file.write_text(json.dumps(known))
    assert "Measured" not in rep(*args, "--collect").out
    assert rep(*args, "--collect", "--note", "From an attic.").out.endswith("\n\nFrom an attic.\n\n")


def test_where_nothing_was_run_nothing_was_made(toy: Path) -> None:
    tables("--table", "1", "--rows", "1", "--out", "here", "--note", "Digits are small.")
    said = rep("--table", "1,II,fig1", "--rows", "2", "--columns", "2", "--collect", "--out", "here", "--note", "x").out
    assert "Measured" not in said.partition("table II")[0]
    assert "Measured" not in rep("--table", "fig1", "--out", "here", "--note", "x").out


def test_collect_runs_nothing(toy: Path) -> None:
    tables("--table", "1", "--rows", "1", "--out", "here")
    before = stamps("here")
    (one,) = tables("--table", "1", "--out", "here", "--collect")
    assert {c["status"] for row in one["rows"] for c in row["cells"]} == {"run", "not run", "absent", "data absent"}
    assert stamps("here") == before
    assert "runs\n" not in rep("--table", "1", "--out", "here", "--collect").err


def test_two_jobs_find_what_one_finds(toy: Path) -> None:
    (one,) = tables("--table", "1", "--rows", "IID", "--out", "one")
    (two,) = tables("--table", "1", "--rows", "IID", "--out", "two", "--jobs", "2")
    ours = [[c["ours"] for row in t["rows"][:2] for c in row["cells"]] for t in (one, two)]
    assert ours[0] == ours[1]


def test_a_killed_reproduction_goes_on(toy: Path) -> None:
    args = ["toy", "--papers", "papers", "--table", "1", "--scale", "full", "--set", "rounds=60", "--out", "here"]
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.reproduce", *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 60
    while not list(Path("here").glob("*/seed-0/summary.json")):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = [p.parent for p in Path("here").glob("*/seed-0/summary.json")]
    before = {k: v for k, v in stamps("here").items() if Path(k).parent in done}
    assert 0 < len(done) < 4
    assert call("reproduce", *args, "--quiet").code == 0
    assert {k: stamps("here")[k] for k in before} == before
    assert len(list(Path("here").glob("*/seed-0/summary.json"))) == 4


def test_other_folders_are_left_alone(toy: Path) -> None:
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")
    assert refused("reproduce", "toy", "--papers", "papers", "--out", "mine") == (
        "holdfast: mine is not empty and holds no reproduce.json: choose another --out\n"
    )


BLOCK = """
from importlib.machinery import PathFinder

ABSENT = {"click", "rich", "scipy", "sklearn", "matplotlib", "plotly", "PIL"}
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, path=None, target=None: (
    None if name.split(".")[0] in ABSENT else find(name, path, target)
)
"""


def test_torch_and_numpy_are_enough(toy: Path, tmp_path: Path) -> None:
    """Where nothing else is installed, reproductions and comparisons run, also in several processes."""
    write_idx(tmp_path / "data" / "MNIST" / "raw", ("train", "t10k"), 10)
    (toy / "toy.toml").write_text(TOY.replace('data = "digits"', 'data = "mnist"'))
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(BLOCK)
    env = os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}", "HOLDFAST_CACHE": str(tmp_path / "cache")}
    args = [
        "toy",
        "--papers",
        "papers",
        "--table",
        "1",
        "--rows",
        "IID",
        "--seeds",
        "2",
        "--jobs",
        "2",
        "--out",
        "here",
    ]
    said = subprocess.run(
        [sys.executable, "-m", "holdfast.reproduce", *args], env=env, capture_output=True, text=True, timeout=120
    )
    assert said.returncode == 0, said.stderr
    assert "8/8" in said.stderr
    assert "NOT a reproduction" in said.stdout
    code = """
import holdfast
if __name__ == "__main__":
    small = {"clients": 4, "rounds": 2, "out": "compared"}
    found = holdfast.compare(["fedavg", "fedbug"], "mnist", "linear", seeds=2, jobs=2, **small)
    print(found.entries[1]["difference"]["p"])
"""
    Path("script.py").write_text(code)
    said = subprocess.run([sys.executable, "script.py"], env=env, capture_output=True, text=True, timeout=120)
    assert (said.returncode, said.stdout) == (0, "None\n"), said.stderr
    assert "scipy is not installed" in Path("compared/compare.md").read_text()
    assert good("compare", "--tables", "compared", "--json").json["entries"][1]["difference"]["p"] is not None


# -- every table of every paper --------------------
EVERY = [(name, table.id) for name in shelf() for table in load_paper(name).table]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("smoke")


@pytest.mark.parametrize(("paper", "table"), EVERY, ids=lambda v: v)
def test_every_table_runs_at_smoke_scale(paper: str, table: str, shared: Path) -> None:
    found = reproduce(paper, table, scale="smoke", out=shared / paper, light=True)
    assert found.finished
    (one,) = found.tables
    statuses = {c.status for c in one.cells}
    assert statuses <= {"run", "absent"}, statuses
    assert statuses or one.why_not
    for c in one.cells:
        if c.status == "run":
            check_values(c, shared / paper)


def check_values(c: CellRecord, out: Path) -> None:
    """Every number is there; only a target that the run's best round misses was never reached."""
    assert c.runs is not None
    assert c.runs.ours is not None
    target = re.search(r"_to\((.+)\)", c.runs.measure)
    for seed, value in zip(c.runs.seeds, c.runs.ours.values, strict=True):
        lines = (out / c.runs.folder / f"seed-{seed}" / "history.jsonl").read_text().splitlines()
        best = max(json.loads(line)["test_accuracy"] for line in lines)
        missed = target is not None and best < float(target[1])
        assert (value is None) == missed, (c.method, c.runs.measure, best, value)
        assert missed or (value is not None and math.isfinite(value))


def test_only_what_leaks_is_said_to(shared: Path) -> None:
    honest = reproduce("fnr", "leak-2", rows=["4"], columns=["FedAvg"], scale="smoke", out=shared / "fnr").tables
    assert "LEAK" not in table_markdown(honest[0])
    both = reproduce("fnr", "leak-2", rows=["4"], scale="smoke", out=shared / "fnr").tables
    marks = {line.split(" | ")[1]: line.count("(LEAK)") for line in table_markdown(both[0]).splitlines()[2:4]}
    assert marks == {"FNR-FL, leaking": 1, "FedAvg": 0}
    assert table_markdown(both[0]).endswith(f"\n\n{LEAK}")


# -- results --------------------
def test_the_results_page_is_what_the_files_say() -> None:
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


def test_what_is_measured_is_said_in_words(toy: Path) -> None:
    for rounds, words in ("5", "mean accuracy of the last 5 rounds"), ("3", "mean accuracy over all rounds"):
        said = rep("--table", "1", "--rows", "1", "--set", f"rounds={rounds}", "--out", f"of-{rounds}")
        assert f"\nprogress: accuracy of the newest round; in the tables: {words}\n" in said.err
        for text in (said.out, said.err, Path(f"of-{rounds}/reproduce.md").read_text()):
            assert f"; measure: {words}" in text
        assert "last5" not in said.out + said.err
    rep("--table", "1", "--rows", "1", "--out", "here")
    said = rep("--table", "II", "--out", "here")
    assert "progress" not in said.err, "it shares its runs with table 1: none is left"
    to = "rounds to reach an accuracy of"
    assert f"; measure: {to} 99.9%, accuracy · 10⁴ per second, {to} 5%" in said.out
    assert f"  measure: {to} 99.9% [rounds]; split=iid\n" in rep("--list").out


def test_every_measure_has_words() -> None:
    for name in (*PLAIN, *REACHED):
        assert name in WORDS


def test_cells_that_share_a_run_are_explained(toy: Path) -> None:
    rep("--table", "1", "--rows", "2", "--out", "here")
    assert SHARED not in Path("here/reproduce.md").read_text()
    rep("--table", "II", "--out", "here")
    rep("--table", "1", "--rows", "2", "--out", "here")
    text = Path("here/reproduce.md").read_text()
    assert "| IID, FedAvg | 0% | " in text, "the run of table II"
    assert text.startswith(f"{SHARED}\n## toy, table ")


def test_measures() -> None:
    assert Measure.parse("rounds_to(0.6)", "x") == Measure("rounds_to", 0.6)
    assert Measure.parse("drift.cosine", "x") == Measure("drift.cosine")
    for text in ("final(0.5)", "seconds_to", "drift.", "nothing", "rounds_to(x)"):
        with pytest.raises(HoldfastError, match="unknown measure"):
            Measure.parse(text, "x")
    assert [Measure(name).less_is_better for name in ("final", "kappa", "rounds_to", "seconds")] == [
        False,
        False,
        True,
        True,
    ]
    assert Measure("final").scaled(0.5, "%") == 50
    assert Measure("bytes").scaled(2e6, "MB") == 2
