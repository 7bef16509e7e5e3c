"""A run whose training loss explodes says so: while it runs, at its end, in its summary and in tables."""

from __future__ import annotations

import json
import math

import pytest

from helpers.commands import good
from holdfast import Method, compare, federate, from_arrays, load, report, run
from holdfast.runs.explosion import exploded, loss_of_guessing

LR50 = {"lr": 50, "rounds": 5, "epochs": 1, "model": "linear", "device": "cpu"}
REST = ": for 3 rounds in a row the training loss was above 10 times that of the start; lower --lr, or add --clip"


@pytest.mark.parametrize(
    ("losses", "guessing", "round"),
    [
        ([], None, None),
        ([1.0, 11.0, 11.0], None, None),  # two in a row
        ([1.0, 11.0, 11.0, 11.0], None, 4),
        ([1.0, 10.0, 10.0, 10.0], None, None),  # ten times is not above ten times
        ([1.0, 11.0, 11.0, 9.0, 11.0], None, None),
        ([1.0, 11.0, 11.0, 9.0, 11.0, 11.0, 11.0, 1.0, 20.0, 20.0, 20.0], None, 7),  # the first explosion counts
        ([1.0, None, math.nan, math.inf], None, 4),
        ([None, None, None], None, 3),
        ([0.0, 1.0, 1.0, 1.0], None, None),  # nothing to compare with
        ([1e9, 1e9, 1e9], None, None),
        ([1e9, 1e9, 1e9], 2.3, 3),  # the first round has exploded itself
        ([1.0, 11.0, 11.0, 11.0], 2.3, 4),  # the lower of the two counts
        ([5.0, 24.0, 24.0, 24.0], 2.3, 4),
    ],
)  # fmt: skip
def test_the_rule(losses, guessing, round):
    assert exploded(losses, guessing) == round


def test_the_loss_of_guessing_is_known_where_the_loss_is_the_cross_entropy():
    digits = federate(load("digits"), clients=2)
    assert loss_of_guessing(Method.parse("scaffold"), digits) == pytest.approx(math.log(10))
    assert loss_of_guessing(Method.parse("fedlc"), digits) is None
    x = [[float(i)] for i in range(8)]
    assert loss_of_guessing(Method(), federate(from_arrays(x, ["a"] * 8), "iid", clients=2)) is None
    assert loss_of_guessing(Method(), federate(from_arrays(x, [i / 3 for i in range(8)]), "iid", clients=2)) is None


def test_a_run_says_while_it_runs_at_its_end_and_in_its_summary_that_it_exploded(tmp_path):
    out = tmp_path / "run"
    flags = [f"--{name}={value}" for name, value in LR50.items()]
    done = good("run", "fedavg", *flags, "--out", str(out))
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["exploded"], summary["exploded_round"]) == (True, 3)
    assert done.err.count(f"exploded by round 3{REST}") == 2
    assert f"this run exploded by round 3{REST}\n" in done.err


def test_an_explosion_is_noticed_across_a_resume(tmp_path):
    out = tmp_path / "run"
    left = iter([False, True])
    stopped = run("fedavg", out=out, stop=lambda: next(left), **LR50)
    assert not stopped.summary["exploded"]
    done = good("run", "--resume", "--out", str(out))
    assert done.err.count(f"exploded by round 3{REST}") == 2
    assert json.loads((out / "summary.json").read_text())["exploded_round"] == 3


def test_an_ordinary_run_did_not_explode(tmp_path):
    summary = run("fedavg", **(LR50 | {"lr": 0.1})).summary
    assert (summary["exploded"], summary["exploded_round"]) == (False, None)


def test_tables_and_pages_of_a_comparison_say_which_runs_exploded(tmp_path):
    out = tmp_path / "comparison"
    compare(["fedavg", "clip(0.001)"], seeds=1, out=out, **LR50)
    entries = json.loads((out / "compare.json").read_text())["entries"]
    assert [e["exploded"] for e in entries] == [[{"seed": 0, "round": 3}], []]
    text = (out / "compare.md").read_text()
    assert "| fedavg (EXPLODED) |" in text
    assert f"- fedavg, seed 0: exploded by round 3{REST}\n" in text
    assert "clip(0.001) (EXPLODED)" not in text
    assert "fedavg (EXPLODED) &" in (out / "compare.tex").read_text()
    head, first, second = (line.split(",") for line in (out / "compare.csv").read_text().splitlines()[:3])
    assert (first[head.index("exploded")], second[head.index("exploded")]) == ("1", "0")
    page = report(out).read_text()
    assert page.count("<small>exploded with seed 0 by round 3</small>") >= 1


def test_the_page_of_a_run_says_that_it_exploded(tmp_path):
    out = tmp_path / "run"
    run("fedavg", out=out, **LR50)
    assert "<small>exploded with seed 0 by round 3</small>" in report(out).read_text()
