"""Scores over clients in a comparison's tables: the terminal, Markdown, LaTeX and CSV, against figures by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.commands import good
from helpers.comparisons import TINY, found
from helpers.studies import LABELS, study, typed
from holdfast.cli.terminal_table import fit
from holdfast.comparison.client_spread import COPIES, spread_tables
from holdfast.comparison.table_texts import as_csv
from holdfast.comparison.tables import short_tables

pytestmark = pytest.mark.usefixtures("elsewhere")


def over(values: list[list[float]]) -> dict[str, Any]:
    """The figures of two seeds with a score per client each, computed from the definition."""

    def spread(figures: list[float]) -> dict[str, Any]:
        return {"mean": float(np.mean(figures)), "std": float(np.std(figures, ddof=1)), "values": figures}

    return {
        "mean": spread([float(np.mean(v)) for v in values]),
        "worst_tenth": spread([min(v) for v in values]),
        "variance": spread([float(np.var(v)) for v in values]),
    }


def scored() -> dict[str, Any]:
    """Two methods with two seeds; the copies of the second one's clients are scored, too."""
    made = study(LABELS[:2], seeds=2)
    for e, first in zip(made["entries"], (0.5, 0.7), strict=True):
        figures = over([[first, 0.9], [first, 0.7]])
        e["clients"] = {
            "rounds": [20], "mean": [[0.7], [0.75]], "worst_tenth": [[first], [first]],
            "final_mean": figures["mean"], "final_worst": figures["worst_tenth"], "final_variance": figures["variance"],
        }  # fmt: skip
    made["entries"][1]["clients"]["copies"] = over([[0.8, 0.8], [0.8, 0.8]])
    return made


def test_the_table_has_the_model_and_the_copies():
    (table,) = spread_tables(typed(scored()))
    assert table.title == "Test accuracy over clients, on their own test samples"
    assert table.head == ["method", "mean %", "worst tenth %", "variance", "std. dev."]
    variance = (20**2 + 10**2) / 2  # of 50 and 90, and of 50 and 70, in percent
    assert table.rows == [
        ["fedavg", "65.00 ± 7.07", "50.00 ± 0.00", f"{variance:.3g}", f"{variance**0.5:.3g}"],
        ["fedbug(0.4)", "75.00 ± 7.07", "70.00 ± 0.00", "50", "7.07"],
        [f"fedbug(0.4), {COPIES}", "80.00 ± 0.00", "80.00 ± 0.00", "0", "0"],
    ]
    assert fit(table, 80).left_out == []


def test_every_line_of_the_csv_has_the_same_columns():
    """Also where the first method diverged before it was scored, and one method alone has copies."""
    made = scored()
    del made["entries"][0]["clients"]
    rows = list(csv.DictReader(as_csv(typed(made)).splitlines()))
    assert [rows[0][k] for k in ("clients_mean", "clients_worst_tenth", "clients_variance", "copies_mean")] == [""] * 4
    assert [float(rows[1][k]) for k in ("clients_worst_tenth", "copies_worst_tenth", "copies_variance")] == [
        0.7,
        0.8,
        0,
    ]


def test_without_such_scores_there_is_no_table():
    assert spread_tables(typed(study())) == []
    assert len(short_tables(typed(study()))) == 3


def test_a_comparison_shows_what_its_runs_measured():
    said = good("compare", "fedavg", *TINY, "--client-eval", "--personal", "1", "--seeds", "1", "--out", "here").err
    summary = json.loads(Path("here/fedavg/seed-0/summary.json").read_text())
    for kind, name in (("client_scores", "fedavg"), ("personal_client_scores", f"fedavg, {COPIES}")):
        mean, worst = (f"{100 * summary[kind][k]:.2f}" for k in ("mean", "worst_tenth"))
        assert f"| {name} | {mean} | {worst} |" in Path("here/compare.md").read_text()
        (line,) = [line for line in said.splitlines() if line.startswith(name) and worst in line and mean in line]
        assert line.split()[-4:-2] == [mean, worst]
    copies = found("here")["entries"][0]["clients"]["copies"]
    assert copies["variance"]["values"] == [summary["personal_client_scores"]["variance"]]
