"""Whether the split of a comparison follows its seeds, and the clients that its data brings."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from helpers.commands import TINY, config, facts, good, refused
from helpers.exact_errors import raises_exactly
from holdfast.comparison.study_folder import StudyFolder
from holdfast.comparison.tables import describe
from holdfast.comparison.unfinished import study_so_far
from holdfast.reports.charts import split as split_chart
from holdfast.reports.page_text import facts as page_facts

pytestmark = pytest.mark.usefixtures("elsewhere")
SHORT: dict[str, Any] = {"model": "linear", "steps": 2, "rounds": 1}


def hospitals() -> holdfast.DataSet:
    draw = np.random.default_rng(5)
    x = draw.normal(40, 3, (90, 4))
    names = np.array(["Aachen", "<b>Bonn</b>", "Charité"])[np.arange(90) % 3]
    return holdfast.from_arrays(x, (x[:, 0] > 40).astype(int), groups=names, name="hospitals")


def counts_of(folder: Path) -> list[list[list[int]]]:
    return [json.loads(path.read_text())["counts"] for path in sorted(folder.glob("*/seed-*/split.json"))]


def test_the_split_follows_the_seed_unless_it_has_its_own() -> None:
    good("compare", "fedavg", "prox(0.1)", *TINY, "--seeds", "2", "--out", "each")
    good("compare", "fedavg", "prox(0.1)", *TINY, "--seeds", "2", "--split-seed", "3", "--out", "one")
    each, one = (StudyFolder(Path(name)).result() for name in ("each", "one"))
    assert "seeds 0 and 1, a split per seed" in describe(each)
    assert "seeds 0 and 1, one split (split seed 3)" in describe(one)
    assert "a split per seed" in page_facts(each)
    assert "one split (split seed 3)" in page_facts(one)
    assert "a split per seed" in Path("each/compare.md").read_text()
    fedavg = [counts_of(Path(name))[:2] for name in ("each", "one")]
    assert fedavg[0][0] != fedavg[0][1]
    assert fedavg[1][0] == fedavg[1][1]
    seeds = [config(f"one/fedavg/seed-{s}") for s in (0, 1)]
    assert [(c["seed"], c["split_seed"]) for c in seeds] == [(0, 3), (1, 3)]
    assert [config(f"each/fedavg/seed-{s}")["split_seed"] for s in (0, 1)] == [0, 1]
    # The command of each run, and that of the comparison, repeat it.
    good("run", "fedavg", *TINY, "--seed", "1", "--split-seed", "3", "--out", "alone")
    assert facts("alone") == facts("one/fedavg/seed-1")
    words = shlex.split(str(one.command).replace("--out one", "--out again"))
    assert "--split-seed" in words
    good(*words[1:], "--quiet")
    assert facts("again/fedavg/seed-1") == facts("one/fedavg/seed-1")


def test_a_comparison_is_not_resumed_with_another_seed_of_the_split() -> None:
    words = ("compare", "fedavg", *TINY, "--seeds", "1")
    good(*words, "--out", "each")
    good(*words, "--split-seed", "3", "--out", "one")
    remedy = "choose another --out, or start over with --overwrite"
    assert refused(*words, "--split-seed", "3", "--out", "each") == (
        f"holdfast: each holds another comparison, with split_seed = seed, not 3: {remedy}\n"
    )
    assert refused(*words, "--out", "one") == (
        f"holdfast: one holds another comparison, with split_seed = 3, not seed: {remedy}\n"
    )
    good(*words, "--out", "each")
    good(*words, "--split-seed", "3", "--out", "one")


def test_clients_that_the_data_brings() -> None:
    found = holdfast.compare(["fedavg", "scaffold"], hospitals(), seeds=2, out="three", **SHORT)
    assert found.study is not None
    settings = found.study.settings
    assert (settings["split"], settings["clients"], settings["cohort"]) == ("given", 3, 2)
    assert settings["normalisation"] == "federated"
    assert "given over 3 clients" in describe(found.study)
    assert "seeds 0 and 1, one split" in describe(found.study)
    assert found.study.split.names == ["<b>Bonn</b>", "Aachen", "Charité"]
    assert split_chart(found.study)[0].columns == ["<b>Bonn</b>", "Aachen", "Charité"]  # type: ignore[union-attr]
    again = holdfast.compare(["fedavg", "scaffold"], hospitals(), seeds=2, out="three", **SHORT)
    assert again.study == found.study
    assert study_so_far(StudyFolder(Path("three"))).split.names == found.study.split.names
    with raises_exactly("clients is 20, but hospitals brings 3: leave out clients, or use another split, such as iid"):
        holdfast.compare(["fedavg"], hospitals(), clients=20, out="wrong", **SHORT)
    text = holdfast.report("three").read_text()
    assert json.dumps("Charité") in text
    assert "<b>Bonn" not in text


def test_all_points_of_a_sweep_have_the_clients_of_the_data() -> None:
    found = holdfast.compare(["fedavg"], hospitals(), seeds=1, sweep={"split": ["given", "iid"]}, out="s", **SHORT)
    assert found.study is not None
    assert found.study.settings["clients"] == 3
    assert [config(f"s/fedavg-split-{name}/seed-0")["clients"] for name in ("given", "iid")] == [3, 3]
    with raises_exactly("clients is 4, but hospitals brings 3: leave out clients, or use another split, such as iid"):
        holdfast.compare(["fedavg"], hospitals(), seeds=1, sweep={"clients": [3, 4]}, out="t", **SHORT)
