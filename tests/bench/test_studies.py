"""The pages show what the studies in ``benchmarks/studies`` measured."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from helpers.places import ROOT


@pytest.fixture
def study(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script of ``benchmarks``, which finds its neighbours there."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module(request.param)


@pytest.mark.parametrize("study", ["advise_regret", "scale_costs"], indirect=True)
def test_the_page_shows_what_was_measured(study: ModuleType):
    stored = json.loads(study.STORED.read_text())
    assert stored
    assert f"{study.START}\n\n{study.tables(stored)}\n\n{study.END}" in study.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("study", ["advise_regret"], indirect=True)
def test_a_part_of_the_grid_is_named_as_such(study: ModuleType, tmp_path: Path):
    names = [held_out.name for held_out in study.GRID]
    stored = [found["name"] for found in study.read(study.STORED)]
    assert len(set(names)) == 30
    assert stored == names[: len(stored)], "federations are run in the order of the grid"
    assert study.read(tmp_path / "nothing.json") == []
    assert study.tables([]) == "**The study has not been run yet**: none of its 30 federations is finished."

    def judged(*scores: float) -> dict[str, object]:
        return {"method": "fedavg", "lr": 0.1, "scores": list(scores)}

    scores = {study.SEARCH: 0.9, study.ADVISE: 0.8, study.PLAIN: 0.7, study.FEDAVG: 0.6}
    policies = {policy: judged(score) for policy, score in scores.items()}
    three = [{"name": name, "policies": policies} for name in names[:3]]
    assert study.tables(three).startswith(
        "| 3 of 30 federations | mean regret | largest | regret minus that of `advise` |\n|---|---|---|---|\n"
        "| `advise` | +10.00 | 10.0 |  |\n"  # no interval: three say nothing about others
    )
    assert "| `advise` | +10.00 [+10.00, +10.00] | 10.0 |  |" in study.tables(4 * three)


@pytest.mark.parametrize("study", ["advise_regret"], indirect=True)
def test_regret_by_hand(study: ModuleType):
    """The best of the search scores 90 and 80 %; a policy is 1 and 3 points behind it, and diverged once."""

    def judged(*scores: float | None) -> dict[str, object]:
        return {"method": "fedavg", "lr": 0.1, "scores": list(scores)}

    stored = [
        {"policies": {study.SEARCH: judged(0.88, 0.92), study.ADVISE: judged(0.89, 0.89)}},
        {"policies": {study.SEARCH: judged(0.80, 0.80), study.ADVISE: judged(0.77, 0.77)}},
        {"policies": {study.SEARCH: judged(0.80, 0.80), study.ADVISE: judged(0.80, None)}},
    ]
    assert study.regrets(study.ADVISE, stored) == pytest.approx([1.0, 3.0, 40.0])
    assert study.interval([1.0, 3.0]) == "+2.00 [-10.71, +14.71]"  # 2 ± 12.706 · √2 / √2
