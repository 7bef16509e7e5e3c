"""Which metric a run goes by: by name, as a function in a file or of a Python session; bad choices in one line."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import holdfast
from helpers.commands import call, good
from helpers.exact_errors import raises_exactly
from holdfast.metrics.metric_names import every_metric, fitting, metric_named, metrics, read_metric
from holdfast.metrics.own_function import OwnFunction
from holdfast.tasks.classification import Classification
from holdfast.tasks.multilabel import Multilabel
from holdfast.tasks.next_token import NextToken
from holdfast.tasks.regression import Regression

pytestmark = pytest.mark.usefixtures("elsewhere")
FITS = {
    Classification(): "accuracy auroc balanced_accuracy calibration_error log_loss loss macro_f1 precision recall",
    Multilabel(): "accuracy auroc log_loss loss macro_f1 precision recall subset_accuracy",
    Regression(): "loss mae r2 rmse",
    NextToken(): "accuracy loss perplexity",
}
COSTS = """\
import numpy as np


def cost(y, predictions, miss=10.0):
    positive = predictions[:, 1] > 0.5
    return np.mean(miss * (~positive & (y == 1)) + (positive & (y == 0)))


def told(y, predictions):
    return 1.0


told.lower_is_better = True


def nothing(y, predictions):
    pass


def broken(y, predictions):
    return y["label"]


WEIGHT = 3
"""


def rare() -> holdfast.Federation:
    """Two classes, 9 % of them positive, over five clients."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 4)).astype("float32")
    y = (x[:, 0] + x[:, 1] + rng.normal(size=1000) > 2.3).astype(int)
    return holdfast.federate(holdfast.from_arrays(x, y, name="rare"), split="iid", clients=5)


RARE = rare()
SETTINGS = {"rounds": 2, "epochs": 1, "model": "linear", "cohort": 5}


def test_what_fits_each_task():
    for task, names in FITS.items():
        own = [name for name in fitting(task) if metrics()[name].__module__.startswith("holdfast.")]
        assert sorted(own) == names.split()
        assert own[0] == task.metrics[0]
        assert set(task.metrics) <= set(own)


def test_a_name_that_does_not_exist():
    with raises_exactly("unknown metric 'acuracy'; did you mean accuracy?"):
        read_metric("acuracy", Classification())
    with raises_exactly("unknown metric 'zebra'; known: loss, mae, r2, rmse"):
        read_metric("zebra", Regression())


def test_a_metric_that_does_not_fit():
    with raises_exactly("auroc does not fit regression; use one of rmse, loss, mae, r2"):
        read_metric("auroc", Regression())
    with raises_exactly("rmse does not fit next-token; use one of perplexity, accuracy, loss"):
        read_metric("rmse", NextToken())
    with raises_exactly("calibration_error: bins must be a whole number of at least 1, not 0"):
        read_metric("calibration_error(bins=0)", Classification())


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.metrics.metric.find_spec", lambda name: None)
    with raises_exactly("the metric calibration_error needs the package torchmetrics: pip install 'holdfast[metrics]'"):
        read_metric("calibration_error", Classification())
    with raises_exactly("the metric r2 needs the package sklearn: pip install scikit-learn"):
        read_metric("r2", Regression())
    assert [m.name for m in every_metric(Regression())] == ["rmse", "loss", "mae"]
    result = holdfast.run("fedavg", RARE, **SETTINGS)
    found = result.summary["final_scores"].keys()
    assert found & FITS[Classification()].split() == {*FITS[Classification()].split()} - {"calibration_error"}


def test_every_evaluation_has_the_loss_the_tasks_own_and_the_chosen_one():
    result = holdfast.run("fedavg", RARE, metric="calibration_error(bins=5)", **SETTINGS)
    assert [r.test.keys() for r in result.history] == [{"accuracy", "loss", "calibration_error"}] * 2
    summary = result.summary
    assert summary["metric"] == "calibration_error"
    assert (
        summary["final"] == result.history[-1].test["calibration_error"] == summary["final_scores"]["calibration_error"]
    )
    assert summary["best"] == min(r.test["calibration_error"] for r in result.history), "lower is better"


def test_the_last_scores_are_those_of_the_last_model():
    result = holdfast.run("fedavg", RARE, **SETTINGS)
    y, q = RARE.data.test_y.numpy(), result.predict_proba(RARE.data.test_x)
    found = result.summary["final_scores"]
    assert found["recall"] == pytest.approx((q.argmax(1)[y == 1] == 1).mean())
    assert found["log_loss"] == pytest.approx(-np.log(q[np.arange(len(y)), y]).mean(), rel=1e-5)
    assert "calibration_error" not in found, "it is computed on request"


def test_the_order_of_the_table_and_its_width():
    x = np.random.default_rng(0).normal(size=(60, 3))
    np.savez("data.npz", x=x, y=(x[:, 0] > 0).astype(int))
    Path("load.py").write_text(
        "import numpy as np\n\ndef load():\n    d = np.load('data.npz')\n    return d['x'], d['y']\n"
    )
    Path("costs.py").write_text(COSTS)
    said = good(
        "run", "fedavg", "--data", "load.py:load", "--metric", "costs.py:cost(miss=5.0, lower_is_better=true)",
        "--rounds", "1", "--clients", "3", "--out", "run",
    )  # fmt: skip
    table = said.err.partition("score ")[2].splitlines()
    assert [line.split()[0] for line in table[1:3]] == ["costs.py:cost(miss=5.0)", "accuracy"]
    assert table[0].split() == ["test", "data", "majority", "class"]
    assert all(len(line) <= 80 for line in table[:10])
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["metric"] == "costs.py:cost(miss=5.0)"
    assert Path("run/files/costs.py").read_text() == COSTS
    assert "costs.py " in Path("run/config.toml").read_text()


def test_a_function_in_a_file_is_recorded_and_resumed_only_unchanged():
    Path("costs.py").write_text(COSTS)
    calls: list[int] = []
    stop = {"on_round": lambda r: calls.append(1), "stop": lambda: len(calls) == 1}
    text = "costs.py:cost(lower_is_better=true)"
    whole = holdfast.run("fedavg", RARE, metric=text, **SETTINGS)
    holdfast.run("fedavg", RARE, metric=text, out="run", **SETTINGS | {"rounds": 3}, **stop)
    Path("costs.py").write_text(COSTS + "\n")
    with pytest.raises(holdfast.HoldfastError, match=r"costs\.py has changed since the run was started"):
        holdfast.run(None, RARE, out="run", resume=True)
    Path("costs.py").write_text(COSTS)
    resumed = holdfast.run(None, RARE, out="run", resume=True)
    curve = [r.test["costs.py:cost"] for r in resumed.history]
    assert len(curve) == 3
    assert curve[:2] == [r.test["costs.py:cost"] for r in whole.history]
    assert resumed.summary["best"] == min(curve)
    assert holdfast.load_run("run").summary["final"] == curve[-1]


def cost(y: np.ndarray, predictions: np.ndarray, miss: float = 10.0) -> float:
    positive = predictions[:, 1] > 0.5
    return float(np.mean(miss * (~positive & (y == 1)) + (positive & (y == 0))))


def test_a_function_of_a_session():
    cheap = partial(cost, miss=1.0)  # then it is the share of wrong predictions
    result = holdfast.run("fedavg", RARE, metric=cheap, **SETTINGS)
    assert [r.test["cost"] for r in result.history] == pytest.approx([1 - r.test_accuracy for r in result.history])
    assert result.summary["floor"]["cost"] == pytest.approx(1 - result.summary["floor"]["accuracy"])
    assert result.summary["best"] == max(r.test["cost"] for r in result.history), "higher is better, unless it says so"


def test_the_direction_of_a_function_of_a_session():
    def penalty(y: np.ndarray, predictions: np.ndarray) -> np.ndarray:
        return np.float32(cost(y, predictions))

    penalty.lower_is_better = True
    result = holdfast.run("fedavg", RARE, metric=penalty, **SETTINGS)
    assert result.config.metric == "penalty(lower_is_better=true)"
    assert result.summary["metric"] == "penalty"
    assert result.summary["best"] == min(r.test["penalty"] for r in result.history)


def test_predictions_of_numbers_are_in_the_unit_of_the_data():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(80, 2))
    y = 1000 + 50 * x[:, 0]
    seen = []

    def worst(y: np.ndarray, predictions: np.ndarray) -> float:
        seen.append((y, predictions))
        return float(np.abs(y - predictions).max())

    federation = holdfast.federate(holdfast.from_arrays(x, y), split="iid", clients=5)
    result = holdfast.run("fedavg", federation, metric=worst, **SETTINGS)
    truth, predicted = seen[0]
    assert truth.shape == predicted.shape == (len(federation.data.test_y), 1)
    assert 900 < truth.mean() < 1100
    assert result.summary["final_scores"]["mae"] <= result.summary["final_scores"]["worst"]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_undefined(value: float):
    def odd(y: np.ndarray, predictions: np.ndarray) -> float:
        return value

    result = holdfast.run("fedavg", RARE, metric=odd, out="run", **SETTINGS)
    assert [r.test["odd"] for r in result.history] == [None, None]
    assert result.summary["final"] is None
    assert result.summary["best"] is None
    assert holdfast.load_run("run").history == result.history


def test_resuming_without_the_function_says_what_is_missing(monkeypatch: pytest.MonkeyPatch):
    def mine(y: np.ndarray, predictions: np.ndarray) -> float:
        return 1.0

    calls: list[int] = []
    holdfast.run(
        "fedavg", RARE, metric=mine, out="run", on_round=lambda r: calls.append(1), stop=lambda: bool(calls),
        **SETTINGS | {"rounds": 3},
    )  # fmt: skip
    monkeypatch.setattr("holdfast.metrics.own_function._given", {})  # as in another process
    with raises_exactly(
        "the run in run was started from Python with the metric mine: resume it with holdfast.run(..., out=..., "
        "resume=True) and metric="
    ):
        holdfast.run(None, RARE, out="run", resume=True)
    assert len(holdfast.load_run("run").history) == 2, "the model can be used without it"
    assert len(holdfast.run(None, RARE, out="run", resume=True, metric=mine).history) == 3


def test_bad_functions():
    Path("costs.py").write_text(COSTS)
    cases = {
        "costs.py": "the metric costs.py is a file: name a function in it as well, such as costs.py:score",
        "costs.py:costs": "unknown function 'costs' in {}/costs.py; did you mean cost?",
        "costs.py:nothing": "the metric costs.py:nothing returned None, expected a number: return a float",
        "costs.py:told": "the metric costs.py:told has the attribute lower_is_better: write --metric "
        "'costs.py:told(lower_is_better=true)'",
        "costs.py:cost(lower_is_better=3)": "the metric cost: lower_is_better must be true or false, not 3",
        "costs.py:cost(fine=3)": "the metric {}/costs.py:cost(fine=3) got an unexpected keyword argument 'fine': it "
        "takes y, predictions, miss",
        "costs.py:broken": "the metric costs.py:broken raised IndexError: only integers, slices (`:`), ellipsis "
        "(`...`), numpy.newaxis (`None`) and integer or boolean arrays are valid indices (costs.py, line 21)",
    }
    for text, message in cases.items():
        with raises_exactly(message.format(Path.cwd())):
            holdfast.run("fedavg", RARE, metric=text, **SETTINGS)


def test_bad_objects():
    def accuracy(y: np.ndarray, predictions: np.ndarray) -> float:
        return 1.0

    with raises_exactly("the function accuracy has the name of a metric of the library: rename it"):
        holdfast.run("fedavg", RARE, metric=accuracy)
    with raises_exactly("the metric <lambda> has no name that tables could use: define it with def"):
        holdfast.run("fedavg", RARE, metric=lambda y, predictions: 1.0)
    with raises_exactly("the metric is of type int: pass a name or a function"):
        holdfast.run("fedavg", RARE, metric=3)


def test_next_token_has_no_arrays_for_a_function():
    Path("costs.py").write_text(COSTS)
    with raises_exactly("costs.py:cost does not fit next-token; use one of perplexity, accuracy, loss"):
        read_metric("costs.py:cost", NextToken())


def test_reading_a_stored_name_executes_nothing():
    metric = metric_named("nowhere.py:cost(miss=5, lower_is_better=true)")
    assert isinstance(metric, OwnFunction)
    assert (metric.name, metric.higher_is_better) == ("nowhere.py:cost(miss=5)", False)
    assert metric_named("of_a_session").higher_is_better


def test_the_command_line():
    Path("costs.py").write_text(COSTS)
    assert call("run", "fedavg", "--metric", "r2").err == (
        "holdfast: r2 does not fit classification; use one of accuracy, auroc, balanced_accuracy, calibration_error, "
        "log_loss, loss, macro_f1, precision, recall\n"
    )
    said = call("run", "fedavg", "--metric", "costs.py:missing").err
    assert said.startswith("holdfast: unknown function 'missing' in ")


HALF = """\
from dataclasses import dataclass

import holdfast


@dataclass(frozen=True)
class Half(holdfast.Metric):
    name = "NAME"
    tasks = ("class",)

    def compute(self, p):
        return float(p.hit.mean()) / 2
"""


def test_a_metric_of_ones_own_as_a_class():
    Path("half.py").write_text(HALF.replace("NAME", "toy-half"))
    result = holdfast.run("fedavg", RARE, metric="toy-half", imports="half.py", **SETTINGS)
    assert result.summary["final"] == result.history[-1].test_accuracy / 2
    Path("same.py").write_text(HALF.replace("NAME", "accuracy"))
    taken = "same.py defines a metric called accuracy, which is one of the library: rename it"
    with raises_exactly(f"{Path.cwd()}/{taken}"):
        holdfast.run("fedavg", RARE, imports="same.py", **SETTINGS)
    metrics()["toy-half"].name = ""  # so that other tests do not find it


def test_a_comparison_in_several_processes_needs_a_file():
    with raises_exactly("a metric from Python needs jobs=1; with more, put it in a file: metric='costs.py:cost'"):
        holdfast.compare(["fedavg"], metric=cost, jobs=2)


def test_a_comparison_goes_by_a_function():
    outcome = holdfast.compare(["fedavg"], "digits", "linear", seeds=1, rounds=1, metric=cost, out="study", clients=4)
    summary = json.loads(next(Path("study").rglob("summary.json")).read_text())
    assert outcome.finished
    assert summary["metric"] == "cost"
