"""What a user requests: settings in layers, rows and columns by name, and bad input."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.commands import good, refused
from helpers.toy_paper import TOY, rep
from holdfast.core.errors import HoldfastError
from holdfast.reproduce.cells import Setup, TableSelection, cells
from holdfast.reproduce.paper import PLAIN, Reading
from holdfast.reproduce.paper_file import load_paper
from holdfast.reproduce.readings import merged
from holdfast.reproduce.selection import choose

READING = Reading(PLAIN, ())


def test_layers_override_each_other(toy: Path) -> None:
    paper = load_paper("toy", toy)
    full, small, smoke = (
        cells(Setup(paper, scale, {}, READING), TableSelection.whole(paper.table[0]))
        for scale in ("full", "small", "smoke")
    )
    assert (full[0].config.rounds, small[0].config.rounds, smoke[0].config.rounds) == (4, 3, 2)
    assert (full[0].config.cohort, full[0].config.steps) == (2, 3)
    assert (smoke[0].config.cohort, smoke[0].config.participation) == (None, 0.5), "a rival replaces the other"
    assert (smoke[0].config.steps, smoke[0].config.epochs) == (None, 1)
    assert [c.config.method for c in full[:4]] == ["fedavg", "fedbug(0.4)", "prox(0.01)", "prox(0.01)+fedbug(0.4)"]
    asked = Setup(paper, "full", {"rounds": 9}, READING)
    assert cells(asked, TableSelection.whole(paper.table[0]))[0].config.rounds == 9
    assert full[4].absent == "no data from there"
    assert merged([{"cohort": 2, "lr": 1}, {"participation": 0.5}, {"lr": 2}]) == {"participation": 0.5, "lr": 2}


def test_equal_cells_share_a_folder(toy: Path) -> None:
    paper = load_paper("toy", toy)
    one, two = (cells(Setup(paper, "full", {}, READING), TableSelection.whole(table)) for table in paper.table[:2])
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


def test_a_row_or_column_must_be_in_at_least_one_table() -> None:
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
def test_a_missing_row_gets_a_short_answer(text: str, wrong: str | None, hint: str) -> None:
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
            "unknown key 'captoin' in toy.toml, table 1; did you mean caption?",
        ),
        ('caption = "Accuracy of two methods"', "", "toy.toml, table 1: the key 'caption' is missing; add it"),
        ("[scale.smoke]", "[scale.tiny]", "unknown scale 'tiny' in toy.toml; known: small, smoke"),
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
        (("toy", "--seeds", "many"), "--seeds must be a whole number, not many"),
        (("toy", "--jobs", "0"), "jobs must be a whole number of at least 1, not 0"),
        (("toy", "--set", "lr"), "--set lr: expected KEY=VALUE, such as --set lr=0.5"),
        (("toy", "--set", "lrr=1"), "unknown setting 'lrr'; did you mean lr?"),
        (
            ("toy", "--set", "lr=-1"),
            "toy, table 1, IID, FedAvg / 0%: lr must be a number above 0, not -1.0",
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
    assert "toy          Toy: a paper for tests (2026)" in good("reproduce", "--list", "--papers", "papers").out
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
