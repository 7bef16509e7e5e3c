"""Charts of scores by client, against the files of the runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast.comparison.client_figures import SAMPLED, listed
from holdfast.comparison.single_run import study_of_run
from holdfast.comparison.stored_run import StoredRun
from holdfast.reports.charts import BarChart, HeatMap, Line, LineChart
from holdfast.reports.client_charts import client_charts
from holdfast.reports.client_tables import clients_by_name, spread_over_clients
from holdfast.reports.page_sections import sections
from holdfast.reports.static_charts import draw
from holdfast.runs.client_table import ClientRow, ClientTable

SETTINGS: dict[str, Any] = {
    "data": "digits", "split": "dirichlet(0.5)", "clients": 4, "model": "linear", "rounds": 2, "batch": 64,
    "device": "cpu", "client_eval": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("scored") / "run"
    holdfast.run("fedavg", out=out, personal=1, **SETTINGS)
    return out


def test_a_run_shows_rounds_and_clients(folder: Path):
    study = study_of_run(folder)
    mean, worst, clients = client_charts(study)
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert isinstance(mean, LineChart)
    assert isinstance(worst, LineChart)
    assert isinstance(clients, BarChart)
    assert mean.series[0].y == [line["clients"]["mean"] for line in history]
    assert worst.series[0].y == [line["clients"]["worst_tenth"] for line in history]
    rows = sorted(json.loads((folder / "clients.json").read_text())["rows"], key=lambda row: row["score"])
    assert clients.categories == [row["name"] for row in rows]
    assert [bar.label for bar in clients.series] == ["fedavg", "fine-tuned copy"]
    assert [bar.values for bar in clients.series] == [[r["score"] for r in rows], [r["personal"] for r in rows]]
    assert "Clients" in [section.title for section in sections(study)]


def test_several_methods_share_a_map(folder: Path):
    study = study_of_run(folder)
    other = replace(study.entries[0], label="other")
    *_, clients = client_charts(replace(study, entries=[study.entries[0], other]))
    assert isinstance(clients, HeatMap)
    assert clients.columns == ["fedavg", "other"]
    assert all(mine == theirs for mine, theirs in clients.values)
    assert sorted(clients.rows) == ["0", "1", "2", "3"]


def test_the_page_has_every_client_by_name_and_the_spread(folder: Path, tmp_path: Path):
    study = study_of_run(folder)
    table, spread = clients_by_name(study), spread_over_clients(study)
    assert table is not None
    assert spread is not None
    rows = sorted(json.loads((folder / "clients.json").read_text())["rows"], key=lambda row: row["score"])
    assert table.head == ["fedavg", "Fine-tuned copy", "Test samples"]
    assert [row.label for row in table.rows] == [row["name"] for row in rows]
    expected = [[f"{100 * r['score']:.1f} %", f"{100 * r['personal']:.1f} %", str(r["samples"])] for r in rows]
    assert [[text for text, _ in row.cells] for row in table.rows] == expected
    variance = float(np.var([100 * r["score"] for r in rows]))
    assert [text for text, _ in spread.rows[0].cells][2:] == [f"{variance:.3g}", f"{variance**0.5:.3g}"]
    page = holdfast.report(folder, tmp_path / "page.html").read_text(encoding="utf-8").partition("<script")[0]
    assert "<details open><summary>Every client by name</summary>" in page
    other = replace(study.entries[0], label="other")
    both = clients_by_name(replace(study, entries=[study.entries[0], other]))
    assert both is not None
    assert both.head == ["fedavg", "fedavg, fine-tuned copy", "other", "other, fine-tuned copy", "Test samples"]
    assert [[text for text, _ in row.cells] for row in both.rows] == [[*e[:2], *e[:2], e[2]] for e in expected]


def test_clients_without_a_score_are_listed_last_with_a_dash(tmp_path: Path):
    """The AUROC is not defined on clients whose samples are all of one class."""
    x = np.random.default_rng(0).normal(size=(120, 3))
    y = (x[:, 0] > 0).astype(int)
    groups = np.where((np.arange(120) % 4 == 0) & (y == 0), "one class", np.where(np.arange(120) % 2, "Ulm", "Bonn"))
    data = holdfast.from_arrays(x, y, groups=groups)
    fed = holdfast.federate(data, client_test=0.3)
    holdfast.run("fedavg", fed, "linear", rounds=1, metric="auroc", personal=1, out=tmp_path / "run")
    study = study_of_run(tmp_path / "run")
    table, (*_, bars) = clients_by_name(study), client_charts(study)
    assert table is not None
    assert {row.label for row in table.rows[:2]} == {"Bonn", "Ulm"}
    assert table.rows[2].label == "one class"
    assert [text for text, _ in table.rows[2].cells[:2]] == ["–", "–"]
    assert isinstance(bars, BarChart)
    assert set(bars.categories) == {"Bonn", "Ulm"}
    page = holdfast.report(tmp_path / "run").read_text(encoding="utf-8")
    assert "A dash: AUROC is not defined on the client&#39;s test samples." in page


def test_a_band_of_percentages_ends_at_all_and_at_nothing():
    wide = Line("fedavg", [1, 2], [0.9, 0.2], [0.3, 0.4], 0)
    low, high = draw(LineChart("a", "A", "", [wide], percent=True)).axes[0].get_ylim()
    assert (low, high) == (-0.01, 1.01)
    low, high = draw(LineChart("a", "A", "", [wide])).axes[0].get_ylim()
    assert low < -0.2
    assert high > 1.2


def test_names_of_clients_are_shown_in_full(folder: Path):
    study = study_of_run(folder)
    entry = study.entries[0]
    assert entry.clients is not None
    name = "General Hospital of Nowhere upon the Sea"
    clients = [replace(row, name=f"{name} {row.name}") for row in entry.clients.clients]
    longer = replace(entry, clients=replace(entry.clients, clients=clients))
    (*_, chart) = client_charts(replace(study, entries=[longer]))
    figure = draw(chart)
    shown = [label.get_text().replace("\n", " ") for label in figure.axes[0].get_yticklabels()]
    assert shown == [row.name for row in clients]


def test_many_clients_are_a_histogram(folder: Path):
    study = study_of_run(folder)
    entry = study.entries[0]
    assert entry.clients is not None
    many = replace(entry.clients, clients=[], scores=[0.1] * 30 + [0.97] * 9 + [1.0])
    *_, clients = client_charts(replace(study, entries=[replace(entry, clients=many)]))
    assert isinstance(clients, BarChart)
    assert clients.categories[2] == "10.0 % to 15.0 %"
    assert clients.series[0].values[2] == 0.75
    assert clients.series[0].values[19] == 0.25


def test_very_many_clients_are_sampled_from_worst_to_best():
    rows = [ClientRow(str(i), i / 5000, 1) for i in range(5000)]
    run = StoredRun(0, [], {}, "", {}, ClientTable("accuracy", rows))
    names, scores = listed(run, higher_is_better=True)
    assert names == []
    assert len(scores) == SAMPLED
    assert (scores[0], scores[-1]) == (0.0, 4999 / 5000)
    assert listed(run, higher_is_better=False)[1][0] == 4999 / 5000


def test_a_run_without_such_scores_has_no_section(tmp_path: Path):
    holdfast.run("fedavg", out=tmp_path / "run", **SETTINGS | {"client_eval": False, "rounds": 1})
    study = study_of_run(tmp_path / "run")
    assert client_charts(study) == []
    assert clients_by_name(study) is None
    assert spread_over_clients(study) is None
    assert "Clients" not in [section.title for section in sections(study)]
