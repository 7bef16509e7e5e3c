"""Readings: what a choice does to a cell, what is run under which reading, and what hand-given settings may do."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.commands import refused
from helpers.comparisons import stamps
from helpers.toy_paper import TOY, rep, tables
from holdfast.reproduce.cells import Setup, TableSelection, cells
from holdfast.reproduce.hand_settings import alike
from holdfast.reproduce.paper import PLAIN, Choice, Paper, PaperColumn, PaperRow, PaperTable
from holdfast.reproduce.paper_file import load_paper, shelf
from holdfast.reproduce.reading_tables import conclusion
from holdfast.reproduce.readings import applied, merged, reading_named
from holdfast.reproduce.store import read

READ = (
    TOY.replace(
        '{ name = "40%", method = "fedbug(0.4)" },',
        '{ name = "40%", method = "fedbug(0.4)" },\n'
        '  { name = "at 0.3", control = "the rate of the thawed layers", set = { lr = 0.3 }, rows = ["IID"] },',
    )
    + """
[[choice]]
name = "slower"
why = "the code says so"
source = "its README"
set = { lr = 0.05 }

[[choice]]
name = "thawed for longer"
why = "a guess"
replace = { fedbug = "fedbug(0.8)" }

[[choice]]
name = "raw pixels"
why = "its loader"
add = { digits = "normalise=off" }

[[reading]]
name = "code"
why = "as published code"
choices = ["slower", "raw pixels"]

[[reading]]
name = "long"
choices = ["thawed for longer"]
"""
)


@pytest.fixture
def read_toy(toy: Path) -> Paper:
    (toy / "toy.toml").write_text(READ)
    return load_paper("toy", toy)


def made(choice: Choice, method: str = "fedavg", row: str = "IID", **values: Any) -> tuple[dict[str, Any], str, str]:
    return applied([choice], PaperTable("1", "Numbers"), PaperRow(row), values, method)


def test_what_a_choice_changes() -> None:
    add = Choice("x", "y", add={"cifar10": "normalise=off", "dirichlet": "balanced=true", "fedagg": "sweeps=1"})
    values, method, _ = made(add, "fedagg(0.1)+prox(0.1)", data="cifar10", split="dirichlet(0.3)+noise(0.1)", lr=1)
    assert values == {
        "data": "cifar10(normalise=off)", "split": "dirichlet(0.3, balanced=true)+noise(0.1)", "lr": 1,
    }  # fmt: skip
    assert method == "fedagg(0.1, sweeps=1)+prox(0.1)"
    assert made(add, data="cifar100", split="iid") == ({"data": "cifar100", "split": "iid"}, "fedavg", "")
    twice = Choice("x", "y", add={"fedagg": "sweeps=2"})
    assert made(twice, "fedagg(0.1, sweeps=1)")[1] == "fedagg(0.1, sweeps=2)"
    assert made(Choice("x", "y", replace={"sam": "sam(0.01)+prox(1)"}), "a+sam(0.5)")[1] == "a+sam(0.01)+prox(1)"
    both = Choice("x", "y", replace={"sam": "sam(0.01)"}, add={"sam": "adaptive=true"})
    assert made(both, "sam(0.5)")[1] == "sam(0.01, adaptive=true)"
    assert made(Choice("x", "y", set={"participation": 0.5}), cohort=2)[0] == {"participation": 0.5}, "its rival goes"
    assert made(Choice("x", "y", measure="best"))[2] == "best"
    written = "fedagg( 0.1 )"
    assert made(Choice("x", "y", add={"agg": "p=1"}), written)[1] == written, "what is not changed stays as written"


@pytest.mark.parametrize(
    ("scope", "concerned"),
    [
        ({}, True), ({"tables": ("1", "2")}, True), ({"tables": ("2",)}, False), ({"rows": ("cifar-10",)}, True),
        ({"rows": ("CIFAR",)}, False), ({"rows": ("x", "IID")}, True), ({"data": "cifar10"}, True),
        ({"data": "cifar100"}, False),
    ],
)  # fmt: skip
def test_what_a_choice_concerns(scope: dict[str, Any], concerned: bool) -> None:
    choice = Choice("x", "y", set={"lr": 0.5}, **scope)
    assert (made(choice, row="CIFAR-10, IID", data="cifar10(normalise=off)")[0].get("lr") == 0.5) == concerned


def test_a_reading_is_overridden_by_scale_and_user(read_toy: Paper) -> None:
    whole, code = TableSelection.whole(read_toy.table[0]), reading_named(read_toy, "code")
    full = cells(Setup(read_toy, "full", {}, code), whole)[0].config
    assert (full.data, full.lr) == ("digits(normalise=off)", 0.05)
    assert cells(Setup(read_toy, "full", {"lr": 1.0}, code), whole)[0].config.lr == 1.0
    control = cells(Setup(read_toy, "full", {}, code), whole)[2]
    assert (control.config.lr, str(control.published)) == (0.05, "nan"), "a choice overrides columns"
    assert [c.absent for c in cells(Setup(read_toy, "full", {}, code), whole) if c.column == 2] == [
        "", "", "no data from there", "at 0.3 is for other rows",
    ]  # fmt: skip


@pytest.mark.parametrize("name", shelf())
def test_every_choice_of_a_paper_is_made_and_changes_something(name: str) -> None:
    paper = load_paper(name)
    assert {choice for r in paper.reading for choice in r.choices} == {choice.name for choice in paper.choice}
    written = [(t, row, *as_written(paper, t, row, c)) for t in paper.table for row in t.row for c in t.columns]
    for choice in paper.choice:
        changed = (applied([choice], t, row, values, method) for t, row, values, method in written if not t.why_not)
        plain = ((values, method, "") for t, _, values, method in written if not t.why_not)
        assert any(a != b for a, b in zip(changed, plain, strict=True)), choice.name


def as_written(paper: Paper, t: PaperTable, row: PaperRow, column: PaperColumn) -> tuple[dict[str, Any], str]:
    """The settings and the method of a cell in the plain reading."""
    values = merged((paper.setting, t.set, row.set, column.set))
    return values, "+".join(m for m in (t.method, row.method, column.method) if m) or "fedavg"


@pytest.mark.parametrize("name", shelf())
def test_every_reading_of_a_paper_can_be_built(name: str) -> None:
    """In every table's first and last row, with all columns; the smoke tests run what that leaves."""
    paper = load_paper(name)
    for reading in paper.reading:
        for t in (t for t in paper.table if not t.why_not):
            rows = sorted({0, len(t.row) - 1})
            assert cells(Setup(paper, "full", {}, reading), TableSelection(t, rows, range(len(t.columns))))


# -- running them --------------------
def test_readings_run_the_baseline_alone(toy: Path, read_toy: Paper) -> None:
    said = rep("--readings", "--rows", "IID, FedAvg", "--scale", "full", "--seeds", "2", "--out", "here")
    assert said.code == 0
    methods = {json.loads(p.read_text())["method"] for p in Path("here").glob("*/seed-*/summary.json")}
    assert methods == {"fedavg"}, "never the method under test"
    assert len(list(Path("here").glob("*/seed-*/summary.json"))) == 4, "the reading “long” changes no baseline"
    assert [t.reading.name for t in read(Path("here/reproduce.json"))] == ["plain", "code", "long"]
    assert "## toy, table 1: the baseline under every reading, full scale\n" in said.out
    lines = [line.split(" | ") for line in said.out.splitlines() if line.startswith("| ")][2:]
    assert [(line[0], line[1], line[2]) for line in lines] == [
        ("| plain", "the settings of the paper's file alone", "IID, FedAvg, 0%"),
        ("| code", "slower; raw pixels", "IID, FedAvg, 0%"),
        ("| long", "thawed for longer", "IID, FedAvg, 0%"),
    ]
    assert "\n- “code”: as published code\n- slower: the code says so (its README)\n" in said.out
    assert conclusion(read(Path("here/reproduce.json"))) in said.out
    before = stamps("here")
    again = rep("--readings", "--rows", "IID, FedAvg", "--scale", "full", "--collect", "--seeds", "2", "--out", "here")
    assert again.out == said.out
    assert stamps("here") == before


def test_a_smoke_test_compares_no_reading_with_print(toy: Path, read_toy: Paper) -> None:
    said = rep("--readings", "--rows", "IID, FedAvg", "--scale", "smoke", "--out", "here")
    lines = [line for line in said.out.splitlines() if "| IID, FedAvg, 0% |" in line]
    assert len(lines) == 3
    assert all(line.endswith("| – |") for line in lines)
    assert "\nAt smoke scale no reading is chosen.\n" in said.out


def test_a_table_under_one_reading(toy: Path, read_toy: Paper) -> None:
    (one,) = tables("--table", "1", "--rows", "1", "--reading", "code", "--scale", "full", "--out", "here")
    assert one["reading"] == {
        "name": "code", "why": "as published code",
        "choices": [
            {"name": "slower", "why": "the code says so", "source": "its README"},
            {"name": "raw pixels", "why": "its loader", "source": ""},
        ],
    }  # fmt: skip
    assert one["reproduction"], "a reading is one of the paper"
    cell = one["rows"][0]["cells"][0]
    assert (cell["settings"]["data"], cell["settings"]["lr"]) == ("digits(normalise=off)", 0.05)
    assert re.fullmatch("[0-9a-f]{8}", cell["made"][0]["data_checksum"])
    assert "difference" not in one["rows"][0]["cells"][2] or one["rows"][0]["cells"][2]["difference"] is None
    rep("--table", "1", "--rows", "1", "--columns", "0%", "--scale", "full", "--out", "here")
    kept = read(Path("here/reproduce.json"))
    assert [(t.reading.name, sum(c.ran for c in t.cells)) for t in kept] == [("code", 3), ("plain", 1)]
    text = Path("here/reproduce.md").read_text()
    assert "## toy, table 1, read as “code”: Accuracy of two methods\n" in text
    assert "; reading “code”: slower; raw pixels.**" in text, "every assumption is named"
    assert "\nControl at 0.3: the rate of the thawed layers.\n" in text


def test_explain_tries_one_choice_at_a_time(toy: Path, read_toy: Paper) -> None:
    said = rep("--explain", "code", "--rows", "IID, FedAvg", "--scale", "full", "--seeds", "2", "--out", "here")
    assert "## toy, table 1: what the choices of “code” are worth, full scale\n" in said.out
    lines = dict(line.strip("| ").split(" | ") for line in said.out.splitlines() if line.startswith("| "))
    del lines["choice"]
    kept = {t.reading.name: t for t in read(Path("here/reproduce.json"))}
    assert list(kept) == ["plain", "only: slower", "only: raw pixels", "code"]

    def ours(reading: str) -> list[float]:
        runs = kept[reading].rows[0].cells[0].runs
        assert runs is not None
        assert runs.ours is not None
        return [v for v in runs.ours.values if v is not None]

    for name, reading in (("slower", "only: slower"), ("raw pixels", "only: raw pixels"), ("all together", "code")):
        gaps = [a - b for a, b in zip(ours(reading), ours("plain"), strict=True)]
        assert lines[name].startswith(f"{sum(gaps) / 2:+.2f} ["), lines
        assert lines[name].endswith("] (2 seeds)")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--reading", "kode"), "unknown reading 'kode' of toy; did you mean code?"),
        (("--explain", PLAIN), "the reading 'plain' makes no choice, so that there is nothing to explain"),
        (("--readings", "--columns", "0%"), "--readings runs the baselines alone: leave --columns out"),
        (
            ("--readings", "--reading", "code"),
            "--readings runs several readings by itself: leave the others of --reading, --readings and --explain out",
        ),
        (
            ("--readings", "--table", "II"),
            "no requested table names a baseline, so that there is none to run; see: holdfast reproduce toy --list",
        ),
        (
            ("--table", "1", "--set", "split=shards(2)"),
            "split=shards(2) would make",
        ),
        (
            ("--table", "1", "--rows", "1-2", "--set", "data=mnist"),
            "data=mnist is for rows of mnist, and the requested rows are of digits: a row keeps its data set; request "
            "other rows, or leave it out",
        ),
    ],
)  # fmt: skip
def test_bad_requests_are_one_line(toy: Path, read_toy: Paper, args: tuple[str, ...], message: str) -> None:
    if "shards" in message:
        text = TOY.replace('method = "prox(0.01)"\nset = { split = "iid" }', 'set = { split = "dirichlet(0.3)" }')
        (toy / "toy.toml").write_text(text)
        message = (
            "split=shards(2) would make 'IID, FedAvg / 0%' and 'IID, FedProx, the usual / 0%' of table 1 the same run: "
            "leave it out, or write a reading (see docs/reproduce.md)"
        )
    assert refused("reproduce", "toy", "--papers", "papers", *args) == f"holdfast: {message}\n"


@pytest.mark.parametrize(
    ("name", "known"),
    [("precision", True), ("rounds", True), ("lr", False), ("split", False), ("model", False), ("steps", True)],
)
def test_settings_in_which_no_two_cells_differ_merge_none(read_toy: Paper, name: str, known: bool) -> None:
    """The toy has splits by row, a rate in a column and in a choice, and its rounds and steps for the whole paper."""
    assert alike(read_toy, {name}) == known
    column = PaperColumn("x", set={"epochs": 2})
    other = replace(read_toy, table=(replace(read_toy.table[0], columns=(column,)),))
    assert not alike(other, {"steps"}), "epochs take their place"


def test_a_data_set_given_by_hand_is_for_its_own_rows(toy: Path) -> None:
    """Row 4 is of another data set: its cells are never filled with the runs of the digits."""
    (one,) = tables("--table", "1", "--set", "data=digits(normalise=off)", "--out", "here")
    statuses = [row["cells"][0]["status"] for row in one["rows"]]
    assert statuses == ["run", "run", "absent", "data absent"]
    settings = one["rows"][0]["cells"][0]["settings"]
    assert settings["data"] == "digits(normalise=off)"
    (kept,) = read(Path("here/reproduce.json"))
    assert kept.rows[3].cells[0].runs is None


# -- the file --------------------
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('["slower", "raw pixels"]', '["slow"]', "unknown choice 'slow' in toy.toml, reading 'code'"),
        ('name = "long"', 'name = "code"', "toy.toml: the reading 'code' appears twice; rename one of them"),
        ('name = "long"', 'name = "plain"', "toy.toml: the reading 'plain' appears twice; rename one of them"),
        ('"slower"\n', '"raw pixels"\n', "toy.toml: the choice 'raw pixels' appears twice; rename one of them"),
        ("set = { lr = 0.05 }", "set = { seed = 5 }",
         "toy.toml, choice 'slower': seed is no setting that a choice can set; leave it out"),
        ("set = { lr = 0.05 }", 'tables = ["9"]', "unknown table '9' in toy.toml, choice 'slower'"),
        ("set = { lr = 0.05 }", 'measure = "wurst"', "toy.toml, choice 'slower': unknown measure 'wurst'"),
        ('level_of = "1"', 'level_of = "II"', "toy.toml, table II: level_of must name another table, not 'II'"),
        ('level_of = "1"', "", "toy.toml, table II: a claim needs one of the keys baseline, level_of and same_runs_as"),
        ('baseline = "0%"', 'baseline = "1%"', "toy.toml, table 1: baseline must name a published column, not '1%'"),
        ('baseline = "0%"', 'baseline = "40%"',
         "toy.toml, table 1: the claim tests '40%', so it cannot be the baseline; name another column"),
        ('baseline = "0%"', 'baseline = "at 0.3"',
         "toy.toml, table 1: baseline must name a published column, not 'at 0.3'"),
        ('{ name = "0%", method = "" }', '{ name = "0%", control = "x" }',
         "toy.toml, table 1: columns with control have no published numbers; put them last"),
        ("why = \"a guess\"", "", "toy.toml, a choice: the key 'why' is missing; add it"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_line(toy: Path, old: str, new: str, message: str) -> None:
    assert old in READ
    (toy / "toy.toml").write_text(READ.replace(old, new, 1))
    said = refused("reproduce", "toy", "--papers", "papers", "--scale", "smoke")
    assert said.startswith(f"holdfast: {message}")
    assert said.count("\n") == 1


def test_the_list_names_choices_and_readings(toy: Path, read_toy: Paper) -> None:
    text = rep("--list").out
    assert "choice slower: the code says so (its README); lr=0.05\n" in text
    assert "choice raw pixels: its loader; digits(..., normalise=off)\n" in text
    assert "choice thawed for longer: a guess; fedbug(0.8) for fedbug\n" in text
    assert "reading code: slower, raw pixels; as published code\n" in text
