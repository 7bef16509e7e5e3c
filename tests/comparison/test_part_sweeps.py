"""Sweeps of a part's parameter: who takes part, what runs, and that commands, folders and labels come back."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from helpers.commands import config, facts, good, refused
from helpers.comparisons import TINY, found, stamps
from holdfast.comparison.part_sweeps import part_names, text_with_values, with_values
from holdfast.comparison.plan import ComparisonRequest, make_plan, sweep_from_text
from holdfast.comparison.sweep_edges import open_ends
from holdfast.method.method import Method, as_method
from holdfast.parts.prox import Prox

pytestmark = pytest.mark.usefixtures("elsewhere")
SUMS = ("prox", "fedprox", "fedbug(0.4)+prox", "fedbug(share=0.4) + fedprox", "scaffold+prox+sam(0.1)")


@given(text=st.sampled_from(SUMS), mu=st.floats(0, 1e6))
def test_the_text_and_the_parts_of_a_point_agree(text: str, mu: float) -> None:
    point: dict[str, Any] = {"lr": 0.1, "prox.mu": mu}
    changed = with_values(as_method(text), point)
    assert Method.parse(text_with_values(text, point)) == changed
    for before, after in zip(as_method(text).parts, changed.parts, strict=True):
        assert after.mu == mu if after.name == "prox" else after == before


def test_methods_without_the_part_run_once(tmp_path: Path) -> None:
    sweep = ("--sweep", "prox.mu=0.01,10", "--sweep", "lr=0.05,0.1")
    said = good("compare", "fedavg", "fedbug(0.4)+fedprox", *TINY, *sweep, "--seeds", "1", "--out", "here", "--json")
    point = "fedbug(0.4)+fedprox, prox.mu="
    assert [e["label"] for e in said.json["entries"]] == [
        "fedavg, lr=0.05", "fedavg, lr=0.1", f"{point}0.01, lr=0.05", f"{point}0.01, lr=0.1", f"{point}10, lr=0.05",
        f"{point}10, lr=0.1",
    ]  # fmt: skip
    to = [e["difference"] and e["difference"]["to"] for e in said.json["entries"]]
    first = ["fedavg, lr=0.05", "fedavg, lr=0.1"]
    assert to == [None, None, *first, *first], "the first method has no prox: it is compared at the same lr"
    assert said.json["sweep"] == {"prox.mu": [0.01, 10.0], "lr": [0.05, 0.1]}
    assert said.json["best_points"].keys() == {"fedavg", "fedbug(0.4)+fedprox"}
    assert "prox.mu" not in said.json["entries"][0]["settings"]

    (run,) = said.json["entries"][-1]["runs"]
    assert config(f"here/{run}")["method"] == "fedbug(0.4)+fedprox(mu=10.0)"
    good("run", "fedbug(0.4)+prox(10)", *TINY, "--lr", "0.1", "--out", "alone", "--quiet")
    assert facts(f"here/{run}") == facts("alone"), "a point of the sweep is the run with that parameter"

    before = stamps("here")
    again = good(*shlex.split(found("here")["command"])[1:], "--quiet")
    assert again.code == 0
    assert stamps("here") == before, "the command of the page is this comparison"
    assert "swept prox.mu: 0.01, 10; swept lr: 0.05, 0.1" in Path("here/compare.md").read_text()


def test_the_first_method_may_have_the_part() -> None:
    said = good("compare", "prox", "scaffold", *TINY, "--sweep", "prox.mu=0.1,1", "--seeds", "1", "--out", "here",
                "--json")  # fmt: skip
    to = {e["label"]: e["difference"] and e["difference"]["to"] for e in said.json["entries"]}
    assert to == {"prox, prox.mu=0.1": None, "prox, prox.mu=1": None, "scaffold": "prox, prox.mu=0.1"}


def test_from_python_with_a_part() -> None:
    made = holdfast.compare(
        ["fedavg", Prox()], data="digits", sweep={"prox.mu": [0.1, 0.5]}, seeds=1, model="linear", clients=6, cohort=2,
        steps=2, rounds=2, out="own",
    )  # fmt: skip
    assert [e["label"] for e in made.entries] == ["fedavg", "prox, prox.mu=0.1", "prox, prox.mu=0.5"]
    methods = [config(f"own/{e['runs'][0]}")["method"] for e in made.entries]
    assert methods == ["fedavg", "prox(mu=0.1)", "prox(mu=0.5)"]
    assert json.loads(Path("own/plan.json").read_text())["sweep"] == {"prox.mu": [0.1, 0.5]}
    assert holdfast.report("own").exists()


def test_words_and_lists_come_back() -> None:
    sweep = sweep_from_text(["fedbug.order=bottom-up,top-down", "freeze.layers = 1, 2"])
    assert sweep == {"fedbug.order": ["bottom-up", "top-down"], "freeze.layers": [1, 2]}
    plan = make_plan(ComparisonRequest(["fedavg", "fedbug"], sweep={"fedbug.order": ["bottom-up", "top-down"]}))
    assert "--sweep fedbug.order=bottom-up,top-down" in (plan.command(Path("here")) or "")
    assert part_names("fedmrur") == ["fedcm", "sam", "hyperbolic", "normalized"]


def test_the_edge_of_a_parameter() -> None:
    assert open_ends("prox.mu", [0.0, 0.1, 1.0]) == [1.0], "0 is the limit of mu"
    assert open_ends("nobody.knows", [1, 2]) == [1, 2]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("prox", "--sweep", "proxx.mu=1"), "unknown part to sweep 'proxx'; did you mean prox?"),
        (("prox", "--sweep", "prox.nu=1"), "unknown parameter 'nu' of prox; did you mean mu?"),
        (
            ("fedavg", "--sweep", "prox.mu=1,2"),
            "prox.mu cannot be swept: no method of the comparison has the part prox; add one, such as prox",
        ),
        (
            ("fedprox", "--sweep", "fedprox.mu=1,2"),
            "fedprox.mu cannot be swept: fedprox stands for prox; name the part, such as prox.mu",
        ),
        (
            ("fedavg", "--sweep", "fedavg.mu=1"),
            "fedavg.mu cannot be swept: fedavg has no parameters; name a part, such as prox.mu",
        ),
        (("prox(0.1)", "--sweep", "prox.mu=1"), "prox.mu is both swept and set in prox(0.1): leave one of them out"),
        (
            ("fedprox(mu=0.1)", "--sweep", "prox.mu=1"),
            "prox.mu is both swept and set in fedprox(mu=0.1): leave one of them out",
        ),
        (("prox", "--sweep", "prox.mu=0.1,-1"), "prox: mu must be a number of at least 0, not -1"),
        (("prox", "--sweep", "prox.mu=0.1,big"), "prox: mu must be a number of at least 0, not big"),
        (("prox", "--sweep", "prox.mu=1,1.0"), "the sweep of prox.mu lists 1 twice: remove one"),
        (("prox", "--sweep", "prox.mu"), "--sweep prox.mu: expected NAME=VALUE,VALUE,..., such as lr=0.01,0.1"),
        (
            ("prox", "--sweep", "prox.mu=1", "--sweep", "prox.mu=2"),
            "prox.mu is swept twice: write --sweep prox.mu=a,b,c once",
        ),
    ],
)
def test_bad_sweeps_are_one_line(args: tuple[str, ...], said: str) -> None:
    assert refused("compare", *args, "--out", "here") == f"holdfast: {said}\n"
    assert not Path("here").exists()
