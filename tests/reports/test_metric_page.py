"""Pages about other metrics and about sweeps: charts, floors, ties, full labels and the setup."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import holdfast
from helpers.studies import errors, study, typed, write
from holdfast.comparison.plan import ComparisonRequest, make_plan
from holdfast.comparison.single_run import study_of_run
from holdfast.comparison.study_schema import Study
from holdfast.reports import charts, page_tables, page_text, static_charts
from holdfast.reports.formatting import wrapped
from holdfast.reports.page_sections import sections
from holdfast.reports.sweep_charts import sweep_charts

LONG = "fedbug(0.4)+feddyn(0.01)+scaffold, split=dirichlet(0.3, balanced=true), prox.mu=0.001"


def test_a_page_about_errors() -> None:
    made = typed(errors())
    tile, *_ = page_text.tiles(made)
    assert tile[0] == "Lowest final RMSE"
    test, validation = charts.scores(made)
    assert (test.title, test.percent, test.floor) == ("Test RMSE", False, made.floor)
    assert (validation.title, validation.floor) == ("Validation RMSE", None)
    assert page_tables.results(made).rows[-1].label == "mean"
    assert page_tables.results(made).rows[-1].cells[0] == ("24.50", [])
    assert page_tables.scores(made).head == ["Best round by validation", "Last 5", "Time", "Traffic"]
    assert [s.id for s in sections(made)][:3] == ["rmse", "loss", "cost"]
    assert "A target is reached once the RMSE is at most that." in sections(made)[2].lead
    assert not charts.by_class(made)


def test_the_loss_as_the_metric_is_drawn_once() -> None:
    made = typed(errors() | {"metric": "loss"})
    assert [c.title for c in (*charts.scores(made), *charts.losses(made))] == [
        "Test loss", "Validation loss", "Training loss"
    ]  # fmt: skip
    ids = [s.id for s in sections(made)]
    assert len(ids) == len(set(ids))


def test_what_chose_the_best_round_is_said_where_the_number_stands() -> None:
    chosen = {on: typed(study(seeds=2, rounds=2, chosen_on=on)) for on in ("test", "validation")}
    heads = {on: page_tables.scores(made).head[0] for on, made in chosen.items()}
    assert heads == {"test": "Best round chosen on test data", "validation": "Best round by validation"}
    alone = typed(study(("a",), seeds=1, rounds=2))
    assert page_text.tiles(alone)[1][2] == "round chosen on test data"


def swept(**sweep: list[Any]) -> Study:
    """A method with every point of a sweep and one that has no parameter ``b``; finals are 1, 2, 3, ... hundredths."""
    template = study(("a",), seeds=2, rounds=2, drift=False)
    methods = {"plain": {k: v for k, v in sweep.items() if k != "part.b"}, "full": sweep}
    names = make_plan(ComparisonRequest(["fedavg"])).entries  # any entry gives the form of a label
    assert names
    entries = []
    for method, axes in methods.items():
        points: list[dict[str, Any]] = [{}]
        for name, values in axes.items():
            points = [point | {name: value} for point in points for value in values]
        for point in points:
            score = (len(entries) + 1) / 100
            scores = {kind: {"mean": score, "std": 0.01, "values": [score] * 2} for kind in ("final", "best", "last5")}
            entries.append(
                template["entries"][0]
                | {"label": f"{method} {point}", "method": method, "settings": point, "scores": scores}
            )
    return typed(template | {"sweep": sweep, "entries": entries, "best_points": {}})


def test_the_metric_against_every_swept_setting() -> None:
    made = swept(lr=[0.3, 0.1], **{"part.b": [1, 2]})
    by_lr, by_part = sweep_charts(made)
    assert (by_lr.title, by_lr.across, by_lr.ticks) == ("Final accuracy by lr", "lr", ["0.1", "0.3"])
    assert {line.label: line.y for line in by_lr.series} == {"plain": [0.02, 0.01], "full": [0.06, 0.04]}, (
        "in the order of the values, at the best point of the other setting"
    )
    assert {line.label: line.y for line in by_part.series} == {"plain": [0.02, 0.02], "full": [0.05, 0.06]}, (
        "a method without the parameter is the same everywhere"
    )
    assert by_part.note == "on the test data, at the best lr of each method and value, chosen on test data"
    assert sweep_charts(swept(lr=[0.1])) == [], "one value is no sweep"
    (words,) = sweep_charts(swept(split=["shards(2)", "iid"]))
    assert words.ticks == ["shards(2)", "iid"], "words stay in their order"


def test_labels_are_shown_in_full(tmp_path: Path) -> None:
    assert "".join(wrapped(LONG)).replace(" ", "") == LONG.replace(" ", "")
    assert max(map(len, wrapped(LONG))) <= 28
    made = study(("fedavg", LONG), seeds=2, rounds=3, drift=False)
    page = holdfast.report(write(tmp_path, made)).read_text(encoding="utf-8")
    assert "…" not in page.partition("<script>")[0]
    figure = static_charts.draw(charts.scores(typed(made))[0])
    assert "\n".join(wrapped(LONG)) in [text.get_text() for text in figure.axes[0].texts]


def test_a_tie_is_named_and_nobody_crowned() -> None:
    made = study(("a", "b"), seeds=3, rounds=2, drift=False)
    for entry, values in zip(made["entries"], ([0.90, 0.92, 0.94], [0.91, 0.94, 0.92]), strict=True):
        mean = statistics.fmean(values)
        entry["scores"]["final"] = {"mean": mean, "std": 0.02, "values": values}
    tiles = page_text.tiles(typed(made))
    assert tiles[0] == ("Highest final accuracy", "92.3 ± 2.0 %", "b and a tie")
    assert not [name for name, _, _ in tiles if name.startswith("Compared")], "the reference is one of them"
    made["entries"][0]["scores"]["final"] = {"mean": 0.5, "std": 0.01, "values": [0.49, 0.5, 0.51]}
    tiles = page_text.tiles(typed(made))
    assert tiles[0][2] == "b"
    assert tiles[1][0] == "Compared with a"


def test_the_setup_shows_the_defaults_that_matter() -> None:
    plan = make_plan(ComparisonRequest(["fedavg"], {"lr": 0.5}))
    assert plan.defaults().keys() == {"epochs", "batch", "split_seed", "validation", "engine"}
    assert plan.defaults()["epochs"] == 5
    assert make_plan(ComparisonRequest(["fedavg"], {"epsilon": 8.0})).defaults()["delta"] == 1e-5
    assert "epochs" not in make_plan(ComparisonRequest(["fedavg"], {"steps": 3})).defaults()
    assert "batch" not in make_plan(ComparisonRequest(["fedavg"], sweep={"batch": [8, 16]})).defaults()
    rows = page_text.setup(typed(study(defaults={"epochs": 5, "lr": 0.1, "engine": "vector"})))
    assert (rows["epochs"], rows["lr"], rows["engine"]) == ("5 (default)", "0.1 (default)", "vector (default)")
    assert (rows["metric"], rows["task"]) == ("accuracy", "classification")


@pytest.mark.usefixtures("elsewhere")
def test_a_run_names_the_engine_that_it_got() -> None:
    holdfast.run("fedavg", model="linear", clients=6, cohort=2, steps=2, rounds=2, out="here")
    page = holdfast.report("here").read_text(encoding="utf-8")
    assert "<th>engine</th><td>vector (default)</td>" in page
    assert "<th>batch</th><td>32 (default)</td>" in page
    assert "<td>None</td>" not in page.partition("Full config")[0]
    assert "<th>normalisation</th><td>published (default)</td>" in page


def test_an_early_stop_is_no_unfinished_run(tmp_path: Path) -> None:
    fed = holdfast.federate(holdfast.load("digits"), clients=4, validation=0.1)
    result = holdfast.run("fedavg", fed, rounds=9, steps=1, lr=1e-9, model="linear", stop_after=1, out=tmp_path / "run")
    assert result.summary["rounds"] == 2
    assert page_text.facts(study_of_run(tmp_path / "run"))[-1] == "stopped early after 2 rounds"


@pytest.mark.usefixtures("elsewhere")
def test_a_run_of_objects_from_python_has_no_command() -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    fed = holdfast.federate(holdfast.from_arrays(x, (x[:, 0] > 0).astype(int)), "iid", clients=3)
    holdfast.run("fedavg", fed, nn.Linear(3, 2), rounds=1, steps=1, out="own")
    page = holdfast.report("own").read_text(encoding="utf-8").partition("<script")[0]
    assert "Started from Python with its own data (arrays) and model (Linear): no command can repeat it." in page
    assert "The command that repeats it" not in page
