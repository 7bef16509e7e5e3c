"""Comparisons that go by another metric than accuracy: direction, targets, ties, floors, and what chose the best."""

from __future__ import annotations

import json
import math
import shlex
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

import holdfast
from helpers.commands import good, lines, refused
from helpers.comparisons import TINY, found
from helpers.studies import errors, study, typed
from holdfast.comparison.result import best_points
from holdfast.comparison.stats import leaders, paired, reach, ties, usual_targets, verdict, without_warm_up
from holdfast.comparison.study_schema import MetricFacts, PairedDifference, Spread
from holdfast.comparison.table_texts import as_csv, markdown
from holdfast.comparison.tables import best_point_lines, candidates, leading, notes, tables

pytestmark = pytest.mark.usefixtures("elsewhere")
RMSE = MetricFacts("rmse", False, False, "regression")


def difference(low: float, high: float) -> PairedDifference:
    return PairedDifference("final", "a", (low + high) / 2, low, high, 0.01, 3)


def test_less_is_better_where_the_metric_says_so() -> None:
    assert [verdict(difference(*ends)) for ends in ((1, 2), (-2, -1), (-1, 1))] == [
        "better", "worse", "no difference seen"
    ]  # fmt: skip
    assert [verdict(difference(*ends), False) for ends in ((1, 2), (-2, -1), (-1, 1))] == [
        "worse", "better", "no difference seen"
    ]  # fmt: skip


def history(scores: list[float | None], seconds: list[float]) -> list[dict[str, Any]]:
    return [
        {"round": t, "test": {} if s is None else {"rmse": s}, "seconds": c, "upload_bytes": 1, "download_bytes": 2}
        for t, (s, c) in enumerate(zip(scores, seconds, strict=True), 1)
    ]


def test_a_target_is_reached_from_above() -> None:
    rounds = history([9.0, None, 5.0, 6.0, 2.0], [10.0, 1.0, 2.0, 3.0, 4.0])
    assert reach(rounds, 5.0, RMSE) == (3, 2.5 + 1 + 2, 9), "the first round counts as the median of the others, 2.5"
    assert reach(rounds, 100.0, RMSE) == (1, 2.5, 3)
    assert reach(rounds, 1.9, RMSE) == (None, None, None)


def test_the_warm_up_is_what_the_first_round_has_too_much() -> None:
    assert without_warm_up([5.0, 1.0, 1.0, 3.0]) == [1.0, 1.0, 1.0, 3.0]
    assert without_warm_up([0.5, 1.0, 1.0]) == [0.5, 1.0, 1.0], "a fast first round is left as it is"
    assert without_warm_up([]) == []


def test_targets_on_the_way_from_the_first_score_to_the_best() -> None:
    assert usual_targets(10.0, RMSE, 110.0) == [60.0, 30.0, 15.0]
    assert usual_targets(10.0, RMSE, 9.0) == [], "it never got better"
    assert usual_targets(0.8, replace(RMSE, higher_is_better=True), -0.2) == [0.3, 0.6, 0.75]
    assert usual_targets(0.8) == [0.4, 0.64, 0.76]


def test_ties_by_hand() -> None:
    """Equal means tie, and so do methods whose paired difference has an interval that includes 0."""
    a, c = [0.90, 0.92, 0.94], [0.70, 0.73, 0.75]
    assert ties(Spread(0.92, 0.0, a), Spread(0.920001, 0.0, c)), "tables show both as 92.00"
    low, high = scipy_stats.ttest_rel(a, c).confidence_interval()
    assert low > 0
    assert high > 0
    assert not ties(Spread(statistics.fmean(a), None, a), Spread(statistics.fmean(c), None, c))
    near = [0.90, 0.93, 0.92]
    low, high = scipy_stats.ttest_rel(a, near).confidence_interval()
    assert low < 0 < high
    assert ties(Spread(statistics.fmean(a), None, a), Spread(statistics.fmean(near), None, near))
    assert not ties(Spread(0.9, None, [0.9]), Spread(0.8, None, [0.8])), "one seed has no interval"


def with_finals(made: dict[str, Any], *finals: list[float]) -> Any:
    for entry, values in zip(made["entries"], finals, strict=True):
        mean = statistics.fmean(values)
        entry["scores"]["final"] = {"mean": mean, "std": statistics.stdev(values), "values": values}
    return typed(made)


def test_nobody_is_crowned_in_a_tie() -> None:
    labels = ("a", "b", "c")
    first, second, third = [0.90, 0.92, 0.94], [0.91, 0.94, 0.92], [0.5, 0.52, 0.51]
    tied = with_finals(study(labels, seeds=3, rounds=2, drift=False), first, second, third)
    assert [e.label for e in leaders(tied.entries, tied.goes_by)] == ["b", "a"]
    said = (
        "b and a tie for the highest final accuracy: their means are shown as the same, or the 95% interval of their "
        "paired difference includes 0."
    )
    assert leading(tied) == [said]
    assert said in notes(tied)
    clear = with_finals(study(labels, seeds=3, rounds=2, drift=False), first, third, [0.4, 0.41, 0.43])
    assert leading(clear) == []
    falling = with_finals(errors(labels), first, second, third)
    assert [e.label for e in leaders(falling.entries, falling.goes_by)] == ["c"], "lower is better"


def test_tables_of_a_regression() -> None:
    made = typed(errors())
    scores, cost, targets = tables(made)
    assert scores.title == "Test RMSE (lower is better)"
    assert scores.head == ["method", "final", "difference", "95% interval", "p", "verdict"]
    assert scores.rows[-1] == ["mean", "24.50", "–", "–", "–", "–"]
    final = made.entries[0].scores.final
    assert scores.rows[0][1] == f"{final.mean:#.4g} ± {final.std:#.2g}"
    assert cost.title == "Other scores and cost (best round by validation)"
    assert cost.head == ["method", "best", "last 5", "s", "MB"]
    assert targets.title == "Rounds, seconds and MB until RMSE is at most (∞: not within the run)"
    assert targets.head == ["method", "12", "8"]
    assert len(tables(typed(errors() | {"targets": []}))) == 2, "no score has become better: there is no target"
    text = " ".join(notes(made))
    assert "κ" not in text + markdown(made)
    head = as_csv(made).splitlines()[0].split(",")
    assert {"validation_mean", "metric", "chosen_on"} <= {*head}
    assert not [name for name in head if name.startswith(("class_", "kappa"))]


def test_the_best_point_is_that_of_the_validation_data() -> None:
    """Test and validation data disagree: with validation data the test data have no part in the choice."""
    made = errors(("a", "b"))
    for entry, (label, test, validation) in zip(
        made["entries"], (("a, lr=1", 5.0, 9.0), ("a, lr=2", 7.0, 8.0)), strict=True
    ):
        entry |= {"label": label, "method": "a", "settings": {"lr": float(label[-1])}}
        for kind, value in (("final", test), ("validation", validation)):
            entry["scores"][kind] = {"mean": value, "std": 0.1, "values": [value] * 3}
    chosen = best_points(typed(made).entries, RMSE)
    assert chosen == {"a": "a, lr=2"}
    swept = typed(made | {"sweep": {"lr": [1.0, 2.0]}, "best_points": chosen})
    assert best_point_lines(swept) == ["best point of a: a, lr=2"]
    assert [e.label for e in candidates(swept)] == ["a, lr=2"]
    said = "The best point of a sweep was chosen by its final RMSE on the validation data; the test data had no part"
    assert said in " ".join(notes(swept))
    for entry in made["entries"]:
        del entry["scores"]["validation"]
    assert best_points(typed(made | {"chosen_on": "test"}).entries, RMSE) == {"a": "a, lr=1"}


def houses(seed: int = 0) -> holdfast.DataSet:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(240, 4)).astype("float32")
    return holdfast.from_arrays(x, (3 * x[:, 0] + x[:, 1] + rng.normal(size=240)).astype("float32"), name="houses")


def test_a_regression_end_to_end(capsys: pytest.CaptureFixture) -> None:
    made = holdfast.compare(
        ["fedavg", "prox"], data=houses(), sweep={"prox.mu": [0.1, 5.0]}, seeds=2, rounds=3, clients=4, steps=5,
        model="mlp(8)", lr=0.1, validation=0.25, out="here",
    )  # fmt: skip
    study = found("here")
    assert (study["metric"], study["higher_is_better"], study["percent"]) == ("rmse", False, False)
    assert (study["task"], study["chosen_on"]) == ("regression", "validation")
    for entry in study["entries"]:
        runs = [lines(f"here/{run}") for run in entry["runs"]]
        assert entry["scores"]["final"]["values"] == [run[-1]["test"]["rmse"] for run in runs]
        assert entry["scores"]["validation"]["values"] == [run[-1]["validation"]["rmse"] for run in runs]
        assert entry["curves"]["validation"] == [[line["validation"]["rmse"] for line in run] for run in runs]
        chosen = [min(run, key=lambda line: line["validation"]["rmse"]) for run in runs]
        assert entry["scores"]["best"]["values"] == [line["test"]["rmse"] for line in chosen]
        assert not {"kappa", "rho", "by_class"} & entry.keys()
    low = study["floor"]
    assert low["name"] == "mean"
    y, test = (np.asarray(t.tolist()).ravel() for t in (made_data().y, made_data().test_y))
    assert low["value"] == pytest.approx(math.sqrt(np.mean((test - y.mean()) ** 2)), rel=0.2), "about that of the mean"
    page = holdfast.report("here").read_text(encoding="utf-8")
    for text in ("Test RMSE", "Validation RMSE", "Best round by validation", "Final RMSE by prox.mu", "mean"):
        assert text in page
    assert "accuracy" not in page.partition('<script type="application/json"')[0].lower()
    assert made.entries[0]["label"] == "fedavg"


def made_data() -> holdfast.DataSet:
    return houses()


def test_another_metric_by_name_comes_back_with_the_command() -> None:
    metric = ("--metric", "balanced_accuracy")
    good("compare", "fedavg", "prox", *TINY, *metric, "--seeds", "1", "--out", "here", "--quiet")
    study = found("here")
    assert study["metric"] == "balanced_accuracy"
    for entry in study["entries"]:
        (run,) = entry["runs"]
        assert entry["scores"]["final"]["values"] == [lines(f"here/{run}")[-1]["test"]["balanced_accuracy"]]
        assert "kappa" not in entry
    assert "--metric balanced_accuracy" in study["command"]
    assert "Test balanced accuracy" in Path("here/compare.md").read_text()


def test_a_target_must_fit_the_metric() -> None:
    bad = "a target must be an accuracy in (0, 1], such as 0.8, not 1.5"
    assert refused("compare", "fedavg", *TINY, "--targets", "1.5", "--out", "here") == f"holdfast: {bad}\n"
    assert refused("compare", "fedavg", *TINY, "--targets", "nan", "--out", "here") == (
        "holdfast: a target must be a finite number, such as 0.8, not nan\n"
    )
    good("compare", "fedavg", *TINY, "--metric", "loss", "--targets", "2.5", "--seeds", "1", "--out", "here", "--quiet")
    assert found("here")["targets"] == [2.5]


HOSPITALS = ("--data", "csv('it is.csv', label='outcome', client='hospital')", "--model", "linear", "--steps", "2",
             "--rounds", "2")  # fmt: skip


def hospitals() -> None:
    """Write a table of three hospitals with few positives, and a metric."""
    draw = np.random.default_rng(0)
    rows = ["age,hospital,outcome"]
    for age, h, noise in zip(draw.integers(20, 90, 300), draw.integers(0, 3, 300), draw.normal(size=300), strict=True):
        rows.append(f"{age},St. Mary's {h},{'sepsis' if age + 9 * noise > 83 else 'healthy'}")
    Path("it is.csv").write_text("\n".join(rows))
    code = "def cost(y, p, miss=10.0):\n    return float(((p[:, 1] < 0.5) & (y == 1)).mean() * miss)\n"
    Path("costs.py").write_text(code)


def printed_command(page: Path) -> list[str]:
    """The command that a page says repeats it."""
    import html

    text = page.read_text(encoding="utf-8").partition("The command that repeats it:")[2]
    return shlex.split(html.unescape(text.partition("<code>")[2].partition("</code>")[0]))


@pytest.mark.parametrize(
    "args",
    [
        ("compare", "fedavg", "fedbug(0.4)+prox", *TINY, "--seeds", "2", "--sweep", "prox.mu=0.1,1"),
        ("compare", "fedavg", *TINY, "--seeds", "1", "--first-seed", "3", "--validation", "0.2", "--metric", "loss"),
        ("run", "fedbug(0.4)", *TINY, "--validation", "0.2", "--stop-after", "1", "--lr", "0.123456789"),
        ("run", "fedavg", *TINY, "--split-seed", "7", "--class-weights", "balanced", "--metric", "macro_f1"),
        ("run", "fedavg", *HOSPITALS, "--pos-weight", "balanced", "--client-eval", "--personal", "1",
         "--metric", "costs.py:cost(miss=5, lower_is_better=true)", "--optimizer", "momentum(0.9)"),
        ("compare", "fedavg", "prox", *HOSPITALS, "--seeds", "1", "--metric", "auroc", "--client-eval",
         "--client-test", "0.3", "--sweep", "prox.mu=0.1,1", "--validation", "0.1"),
    ],
)  # fmt: skip
def test_the_command_printed_on_a_page_gives_the_same_numbers(args: tuple[str, ...]) -> None:
    hospitals()
    good(*args, "--out", "first", "--quiet")
    words = printed_command(holdfast.report("first"))
    assert words[:2] == ["holdfast", args[0]]
    words = words[1:]
    if "--out" in words:
        del words[words.index("--out") : words.index("--out") + 2]
    good(*words, "--out", "second", "--quiet")
    name = "compare.json" if args[0] == "compare" else "summary.json"
    first, second = (clean(json.loads((Path(folder) / name).read_text())) for folder in ("first", "second"))
    assert first == second


def clean(value: Any) -> Any:
    """A result without what the clock and the place decide."""
    clock = ("seconds", "kappa", "out", "command", "date", "checksum")
    if isinstance(value, dict):
        return {k: clean(v) for k, v in value.items() if k not in clock}
    return [clean(v) for v in value] if isinstance(value, list) else value


def test_paired_differences_keep_their_sign() -> None:
    found = paired([5.0, 6.0, 7.0], [7.0, 8.5, 9.5])
    assert found is not None
    assert found.mean == pytest.approx(-7 / 3)
    assert verdict(found, higher_is_better=False) == "better"
