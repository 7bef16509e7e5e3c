"""A comparison's tables: in the terminal, in Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import re
import statistics
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from helpers.commands import good
from helpers.comparisons import TINY, found
from helpers.studies import study, typed
from holdfast.cli.compare import view
from holdfast.cli.terminal_table import fit
from holdfast.comparison.table_texts import escaped, latex, markdown
from holdfast.comparison.tables import tables
from holdfast.core.terminal_text import folded

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_tables_hold_the_same_numbers():
    good("compare", "fedavg", "fedbug(0.4)+prox(0.01)", *TINY, "--seeds", "2", "--out", "here", "--quiet")
    record = found("here")
    rows = list(csv.DictReader((Path("here") / "compare.csv").read_text().splitlines()))
    page, tex = ((Path("here") / f"compare.{kind}").read_text() for kind in ("md", "tex"))
    for row, entry in zip(rows, record["entries"], strict=True):
        assert row["label"] == entry["label"]
        final = entry["scores"]["final"]
        assert float(row["final_mean"]) == final["mean"]
        assert f"{100 * final['mean']:.2f} ± {100 * final['std']:.2f}" in page
        assert f"{100 * final['mean']:.2f} $\\pm$ {100 * final['std']:.2f}" in tex
    d = record["entries"][1]["difference"]
    assert [float(rows[1][k]) for k in ("difference", "low", "high", "p")] == [
        d[k] for k in ("mean", "low", "high", "p")
    ]
    assert record["entries"][1]["verdict"] in page


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("diverged", [False, True])
def test_a_narrow_terminal_breaks_no_number(width: int, diverged: bool):
    record = made_up(diverged)
    for table in tables(typed(record))[:3]:
        console = Console(width=width, file=StringIO())
        fitted = fit(table, width)
        console.print(view(fitted))
        lines = console.file.getvalue().splitlines()
        assert max(map(len, lines)) <= width
        shown = [name for name in table.head if name not in fitted.left_out]
        assert set(fitted.left_out) <= set(table.spare)
        assert fitted.table.head == shown
        for row in table.rows:
            for name, cell in zip(table.head[1:], row[1:], strict=True):
                if name in shown and name not in ("verdict", "compared with"):
                    for piece in cell.replace(" (", "\n(").split("\n"):
                        assert any(piece in line for line in lines), (piece, lines)
        if width == 200:
            assert fitted.table == table


@pytest.mark.parametrize(("width", "words"), [(70, "none seen"), (80, "none seen"), (200, "no difference seen")])
def test_a_verdict_is_never_broken(width: int, words: str):
    console = Console(width=width, file=StringIO())
    console.print(view(fit(tables(typed(made_up()))[0], width)))
    rows = [line for line in console.file.getvalue().splitlines() if "[" in line]
    assert len(rows) == 2
    assert all(row.endswith(f"  {words}") for row in rows), rows


def test_names_of_methods_break_between_their_parts():
    assert folded("fedbug(0.4)+prox(0.01)+scaffold, lr=0.1", 13) == "fedbug(0.4)+\nprox(0.01)+\nscaffold,\nlr=0.1"
    assert folded("fedbug(0.4)", 12) == "fedbug(0.4)"
    assert folded("fedmrur(beta=0.123456,gamma=2)", 16) == "fedmrur(beta=\n0.123456,gamma=\n2)"


@pytest.mark.parametrize("width", [70, 80, 100])
def test_a_name_keeps_its_marks(width: int):
    """A comma that belongs to a part follows it, and is not on a line of its own."""
    record = made_up()
    for e in record["entries"]:
        e["label"] += ", lr=0.01, split=dirichlet(0.3, balanced=true)"
    for table in tables(typed(record))[:3]:
        console = Console(width=width, file=StringIO())
        console.print(view(fit(table, width)))
        text = console.file.getvalue()
        assert max(map(len, text.splitlines())) <= width
        for part in ("fedavg,", "feddyn(0.01),", "lr=0.01,", "dirichlet(0.3,", "balanced=true)"):
            assert re.search(rf"(^|[ =+]){re.escape(part)}", text, re.MULTILINE), text


def test_at_80_columns_nothing_is_left_out():
    assert [fit(table, 80).left_out for table in tables(typed(made_up()))[:3]] == [[], [], []]


def test_what_a_narrow_terminal_leaves_out_is_named(monkeypatch: pytest.MonkeyPatch):
    args = ("compare", "fedavg", "fedbug(0.4)+scaffold", *TINY, "--seeds", "2", "--out", "here")
    monkeypatch.setenv("COLUMNS", "50")
    said = good(*args).err
    assert "columns left out because the terminal is narrow: p" in said
    assert "; see here/compare.md\n" in said
    final = found("here")["entries"][1]["scores"]["final"]
    assert f"{100 * final['mean']:.2f} ± {100 * final['std']:.2f}" in said
    monkeypatch.setenv("COLUMNS", "150")
    assert "left out" not in good(*args).err


def missed(values: list[Any]) -> dict[str, Any]:
    return dict.fromkeys(("rounds", "seconds", "bytes"), values)


def made_up(diverged: bool = False) -> dict[str, Any]:
    """The record of a comparison with wide cells: long names, targets that some or all seeds miss."""
    made = study(("fedavg", "fedbug(0.4)", "fedbug(0.4)+feddyn(0.01)"), seeds=4)
    for e in made["entries"]:
        e |= {"leaks_test_data": False, "diverged": [], "verdict": "no difference seen" if e["difference"] else ""}
        e["difference"] = e["difference"] and e["difference"] | {"to": "fedavg", "low": -0.1234, "high": 0.2345}
        e["targets"] = [
            {"target": t, "rounds": [12] * 4, "seconds": [3.456] * 4, "bytes": [3e7] * 4} for t in (0.5, 0.8, 0.9)
        ]
    made["entries"][1]["targets"][2] |= missed([None] * 4)
    made["entries"][2]["targets"][2] |= missed([None, 15, 15, 15])
    if diverged:
        made["entries"][1]["diverged"] = [{"seed": 0, "why": "NaN"}]
    return made | {"targets": [0.5, 0.8, 0.9], "sweep": {}}


def test_the_mean_of_the_last_scores_says_of_how_many():
    args = ("compare", "fedavg", *TINY[:-2], "--seeds", "1", "--json")
    heads = {}
    for name, more in {
        "six": ("--rounds", "6"),
        "three": ("--rounds", "3"),
        "two": ("--rounds", "5", "--eval-every", "3"),
        "some": ("--sweep", "rounds=2,6"),
    }.items():
        good(*args, *more, "--out", name)
        heads[name] = re.search(r"last ([^%]+) \(%\)", (Path(name) / "compare.md").read_text())[1]
        curves = found(name)["entries"][0]["curves"]["test"][0][-5:]
        assert found(name)["entries"][0]["scores"]["last5"]["mean"] == pytest.approx(statistics.fmean(curves))
    assert heads == {"six": "5", "three": "3", "two": "2", "some": "2 to 5"}


def test_latex_is_well_formed():
    good(
        "compare",
        "fedavg",
        "fednlr(a1=0.45)",
        *TINY,
        "--sweep",
        "batch=8,16",
        "--seeds",
        "2",
        "--out",
        "here",
        "--quiet",
    )
    text = (Path("here") / "compare.tex").read_text()
    body = [line for line in text.splitlines() if not line.startswith("%")]
    joined = "\n".join(body)
    assert len(re.findall(r"\\begin", joined)) == len(re.findall(r"\\end", joined)) > 0
    assert re.sub(r"\\[{}]", "", joined).count("{") == re.sub(r"\\[{}]", "", joined).count("}")
    assert not re.search(r"(?<!\\)[%#]", joined), "unescaped"
    assert joined.isascii()
    for block in re.findall(r"\\begin{tabular}{(l?r+)}(.*?)\\end{tabular}", joined, re.DOTALL):
        for line in block[1].splitlines():
            if line.endswith(r"\\"):
                assert len(re.findall(r"(?<!\\)&", line)) == len(block[0]) - 1, line
    assert escaped("a_b & 50% {x} ~^\\ $") == (
        r"a\_b \& 50\% \{x\} \textasciitilde{}\textasciicircum{}\textbackslash{} \$"
    )


def test_names_cannot_break_out_of_a_table():
    """A class is named after a folder, which may be called anything."""
    made = made_up()
    plain = typed(made)
    odd = "a|b\nc <script>x</script> & 5%\u2028\\end{table}"
    study = typed(made | {"classes": [odd, *made["classes"][1:]]})
    assert markdown(study).count("\n") == markdown(plain).count("\n")
    assert "| a\\|b c &lt;script>x&lt;/script> & 5% \\end{table} |" in markdown(study)
    assert "<script" not in markdown(study)
    assert latex(study).count("\n") == latex(plain).count("\n")
    assert r"a|b c $<$script$>$x$<$/script$>$ \& 5\% \textbackslash{}end\{table\}" in latex(study)


def test_the_seeds_are_named():
    for count, words in (
        (1, "seed 0;"),
        (2, "seeds 0 and 1, a split per seed;"),
        (3, "seeds 0 to 2, a split per seed;"),
    ):
        good("compare", "fedavg", *TINY, "--seeds", str(count), "--out", "here")
        assert words in (Path("here") / "compare.md").read_text()
